
-- PostgreSQL keeps the tenants apart, whatever a handler asks for.
call chapar.protect('reservations');
call chapar.protect('manual_key_queue');
call chapar.protect('inventory_rooms');
call chapar.protect('inventory_allocations');
call chapar.protect('inventory_allocation_log');
call chapar.protect('inventory_cancelled');
call chapar.protect('payment_intents');
call chapar.protect('payment_captures');
call chapar.protect('billing_folios');
call chapar.protect('billing_ledger');
call chapar.protect('lock_keys');
call chapar.protect('notification_messages');
call chapar.protect('analytics_facts');
call chapar.protect('analytics_totals');
call chapar.protect('pricing_quotes');
grant select, insert, update on notification_templates to chapar_app, chapar_engine;
