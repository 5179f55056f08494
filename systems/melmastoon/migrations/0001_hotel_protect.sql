
-- PostgreSQL keeps the tenants apart, whatever a handler asks for.
call chapar.protect('reservations'::regclass);
call chapar.protect('manual_key_queue'::regclass);
call chapar.protect('inventory_rooms'::regclass);
call chapar.protect('inventory_allocations'::regclass);
call chapar.protect('inventory_allocation_log'::regclass);
call chapar.protect('inventory_cancelled'::regclass);
call chapar.protect('payment_intents'::regclass);
call chapar.protect('payment_captures'::regclass);
call chapar.protect('billing_folios'::regclass);
call chapar.protect('billing_ledger'::regclass);
call chapar.protect('lock_keys'::regclass);
call chapar.protect('notification_messages'::regclass);
call chapar.protect('analytics_facts'::regclass);
call chapar.protect('analytics_totals'::regclass);
call chapar.protect('pricing_quotes'::regclass);
grant select, insert, update on notification_templates to chapar_app, chapar_engine;
