-- One transaction: the business row and its event. Run with psql.
\set ON_ERROR_STOP on
begin;
select set_config('app.tenant_id', 'acme', true);
insert into orders (tenant, id, total) values ('acme', 'ord_1', 4200);
select chapar.emit('melmastoon.reservation.booking.confirmed.v1',
                   tenant => 'acme', key => 'ord_1',
                   payload => '{"reservationId": "ord_1", "total": 4200}',
                   idempotency_key => 'ord_1:confirmed:1');
commit;
