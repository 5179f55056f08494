-- The tables of the hotel's services, in types that both databases know. Times are
-- microseconds and nights are days, both since 1970.

-- reservation-service
create table reservations (
    tenant       text not null,
    id           text not null,
    property     text not null,
    room         text not null,
    first_night  bigint not null,
    nights       bigint not null,
    guest        text not null,
    locale       text not null,
    amount_minor bigint not null,
    currency     text not null,
    rail         text not null,
    state        text not null,
    reason       text,
    held_at      bigint not null,
    primary key (tenant, id)
);
create table manual_key_queue (
    tenant      text not null,
    reservation text not null,
    reason      text not null,
    queued_at   bigint not null,
    primary key (tenant, reservation)
);

-- inventory-service. The primary key of an allocation is what sells a room once per night.
create table inventory_rooms (
    tenant   text not null,
    property text not null,
    room     text not null,
    primary key (tenant, property, room)
);
create table inventory_allocations (
    tenant      text not null,
    property    text not null,
    room        text not null,
    night       bigint not null,
    reservation text not null,
    primary key (tenant, property, room, night)
);
create index inventory_allocations_reservation on inventory_allocations (tenant, reservation);
create table inventory_allocation_log (
    tenant      text not null,
    property    text not null,
    room        text not null,
    night       bigint not null,
    reservation text not null,
    change      bigint not null
);
create table inventory_cancelled (
    tenant      text not null,
    reservation text not null,
    primary key (tenant, reservation)
);

-- payment-gateway-service
create table payment_intents (
    tenant       text not null,
    reservation  text not null,
    amount_minor bigint,
    currency     text,
    rail         text,
    allocated    bigint not null default 0,
    cancelled    bigint not null default 0,
    state        text not null default 'waiting',
    primary key (tenant, reservation)
);
-- No unique key: a payment that is captured twice has to show.
create table payment_captures (
    tenant       text not null,
    reservation  text not null,
    amount_minor bigint not null,
    reference    text not null,
    captured_at  bigint not null
);

-- billing-service
create table billing_folios (
    tenant      text not null,
    folio       text not null,
    reservation text not null,
    opened_at   bigint not null,
    primary key (tenant, folio)
);
create table billing_ledger (
    tenant       text not null,
    folio        text not null,
    entry        text not null,
    account      text not null,
    amount_minor bigint not null,
    primary key (tenant, folio, entry, account)
);

-- lock-integration-service. No unique key: a key that is issued twice has to show.
create table lock_keys (
    tenant      text not null,
    reservation text not null,
    credential  text not null,
    issued_at   bigint not null
);

-- notification-service. Templates are the platform's, not a tenant's.
create table notification_templates (
    locale  text not null,
    kind    text not null,
    subject text not null,
    primary key (locale, kind)
);
insert into notification_templates (locale, kind, subject) values
    ('en', 'confirmed', 'Your booking is confirmed'), ('en', 'cancelled', 'Your booking is cancelled'),
    ('ps', 'confirmed', 'ستاسو بکنګ تایید شو'), ('ps', 'cancelled', 'ستاسو بکنګ لغوه شو'),
    ('fa', 'confirmed', 'رزرو شما تأیید شد'), ('fa', 'cancelled', 'رزرو شما لغو شد'),
    ('ar', 'confirmed', 'تم تأكيد حجزك'), ('ar', 'cancelled', 'تم إلغاء حجزك');
create table notification_messages (
    tenant      text not null,
    message     text not null,
    reservation text not null,
    kind        text not null,
    state       text not null,
    primary key (tenant, message)
);

-- analytics-service. No unique key: a fact that is applied twice has to show.
create table analytics_facts (
    event_id    text not null,
    topic       text not null,
    tenant      text not null,
    aggregate   text not null,
    occurred_at bigint not null
);
create table analytics_totals (
    tenant        text primary key,
    confirmed     bigint not null,
    cancelled     bigint not null,
    revenue_minor bigint not null
);

-- pricing-service
create table pricing_quotes (
    tenant       text not null,
    reservation  text not null,
    nights       bigint not null,
    amount_minor bigint not null,
    currency     text not null,
    quoted_at    bigint not null,
    primary key (tenant, reservation)
);
