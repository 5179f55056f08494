-- The doors for services: chapar.append and chapar.emit, and what they check.

-- The shard of a key. The library computes the same; neither may ever change.
create function chapar.shard(ordering_key text) returns smallint
language sql immutable parallel safe
return (get_byte(sha256(convert_to(ordering_key, 'UTF8')), 0) % 64)::smallint;
grant execute on function chapar.shard(text) to chapar_app, chapar_engine;

-- Limits the wait for a lock to 5 s for the rest of the transaction, unless the caller's limit is
-- shorter; returns the caller's limit, to be restored. A key that another transaction holds for
-- long gives a retryable error instead of a hang.
create function chapar.limit_waiting() returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    limit_before constant text := current_setting('lock_timeout');
begin
    if limit_before = '0' or limit_before::interval > interval '5 s' then
        perform set_config('lock_timeout', '5s', true);
    end if;
    return limit_before;
end
$$;

-- Locks whole shards, in ascending order, for a transaction with very many keys.
create function chapar.lock_shards(shards integer[]) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    limit_before constant text := chapar.limit_waiting();
begin
    perform pg_advisory_xact_lock(7526764::integer, s.shard)
    from (select distinct unnest(shards) as shard order by 1) s;
    perform set_config('lock_timeout', limit_before, true);
end
$$;
grant execute on function chapar.lock_shards(integer[]) to chapar_app, chapar_engine;

-- Refuses what no relay could publish, with words. Every size is bounded far below the limit of an
-- index entry: a row that a later statement cannot index would stop its shard.
create function chapar.check_sizes(
    event_id text, tenant text, topic text, ordering_key text, aggregate_type text, aggregate_id text,
    idempotency_key text, correlation_id text, causation_id text, headers text, body bytea
) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
    part  record;
begin
    for part in
        select * from (values
            ('event id', event_id, 256), ('tenant', tenant, 256), ('subject', topic, 256),
            ('ordering key', ordering_key, 1024), ('aggregate type', aggregate_type, 256),
            ('aggregate id', aggregate_id, 1024), ('idempotency key', idempotency_key, 1024),
            ('correlation id', correlation_id, 256), ('causation id', causation_id, 256),
            ('metadata', headers, 65536)
        ) p (name, content, most)
        where octet_length(p.content) > p.most
    loop
        raise exception 'CH1017: the % of an event on % has % bytes, at most % are allowed',
            part.name, left(topic, 100), octet_length(part.content), part.most using errcode = 'CHP04';
    end loop;
    if octet_length(body) > 16777216 then
        raise exception 'CH1017: the message of an event on % has % bytes, at most 16777216 are allowed',
            left(topic, 100), octet_length(body) using errcode = 'CHP04';
    end if;
    if event_id = '' or event_id ~ '[\x01-\x1f\x7f-\x9f]' then
        raise exception 'the event id % is empty or has a control character', quote_literal(event_id)
            using errcode = 'CHP04';
    end if;
end
$$;

-- Refuses an ordering key outside of the tenant's own, which would hold up another tenant's events, and
-- a shard that no relay reads.
create function chapar.check_key(tenant text, ordering_key text, shard smallint) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    if check_key.shard not between 0 and 63 then
        raise exception 'there is no shard %; it is chapar.shard(ordering_key)', check_key.shard
            using errcode = 'CHP04';
    end if;
    if not (starts_with(check_key.ordering_key, check_key.tenant || ':') or check_key.ordering_key = check_key.tenant)
       and exists (select from chapar.settings s where starts_with(s.key_template, '{tenant}')
                   -- Of a bound login also before the first program has written the profile here.
                   and (s.keys_checked or has_table_privilege(session_user, 'chapar.bound_mark'::regclass, 'select')
                                          and not pg_has_role(session_user, 'chapar_owner', 'member'))) then
        raise exception 'CH1018: the ordering key % is not one of the tenant %',
            quote_literal(check_key.ordering_key), quote_literal(check_key.tenant)
            using errcode = 'CHP04', hint = 'begin the key with the tenant and a colon; a system whose keys have another form says so with '
                                               'chapar migrate apply --profile';
    end if;
end
$$;

-- Appends one event inside the caller's transaction and returns its id, or the id of the
-- first event with the same idempotency key and payload. This is the only way into the outbox.
--
-- The lock on the key is taken before the sequence number: two transactions of one key get their
-- numbers in commit order. Each statement of this function has its own snapshot, so it sees what
-- the transaction it waited for has written.
create function chapar.append(
    event_id text, tenant text, topic text, ordering_key text, shard smallint,
    aggregate_type text, aggregate_id text, idempotency_key text, payload_hash bytea,
    correlation_id text, causation_id text, sealed boolean, headers text, body bytea,
    shard_is_locked boolean default false
) returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    first_id     text;
    first_hash   bytea;
    limit_before text;
    keys_locked  integer;
    own_xid      xid8;
    was_set      text;
begin
    -- One expression for all that is almost never so: PostgreSQL prepares each expression again in
    -- every transaction. What is wrong is looked up when something is.
    if current_setting('app.tenant_id', true) is distinct from append.tenant or append.tenant = ''
       or has_table_privilege(session_user, 'chapar.bound_mark'::regclass, 'select')
       or append.shard < 0 or append.shard > 63
       or octet_length(append.event_id) > 256 or octet_length(append.topic) > 256
       or octet_length(append.ordering_key) > 1024 or octet_length(append.idempotency_key) > 1024
       or octet_length(append.tenant) > 256 or octet_length(append.headers) > 65536
       or octet_length(append.aggregate_type) > 256 or octet_length(append.aggregate_id) > 1024
       or octet_length(append.correlation_id) > 256 or octet_length(append.causation_id) > 256
       or octet_length(append.body) > 16777216
       or position(':' in append.tenant) > 0
       or append.event_id = '' or append.event_id ~ '[\x01-\x1f\x7f-\x9f]'
       or not (starts_with(append.ordering_key, append.tenant || ':') or append.ordering_key = append.tenant) then
        perform chapar.check_form(append.tenant);
        perform chapar.check_tenant(append.tenant);
        perform chapar.check_sizes(append.event_id, append.tenant, append.topic, append.ordering_key,
                                   append.aggregate_type, append.aggregate_id, append.idempotency_key,
                                   append.correlation_id, append.causation_id, append.headers, append.body);
        perform chapar.check_key(append.tenant, append.ordering_key, append.shard);
    end if;
    -- The transaction id is taken before the number: see chapar.open_window. An assignment is
    -- evaluated as an expression, where `perform` is a statement of its own.
    own_xid := pg_current_xact_id();
    if append.ordering_key is not null and not append.shard_is_locked then
        -- The locks of all transactions share a table of a few thousand entries, so a transaction
        -- with very many keys locks whole shards instead.
        keys_locked := nullif(current_setting('chapar.keys_locked', true), '')::integer;
        if keys_locked >= 500 then
            perform chapar.lock_shards(array[append.shard::integer]);
        else
            was_set := set_config('chapar.keys_locked', (coalesce(keys_locked, 0) + 1)::text, true);
            -- Shared, so that it only waits for a transaction that locks whole shards.
            if not (pg_try_advisory_xact_lock_shared(7526764, append.shard::integer)
                    and pg_try_advisory_xact_lock(hashtextextended(append.ordering_key, 0::bigint))) then
                limit_before := chapar.limit_waiting();
                perform pg_advisory_xact_lock_shared(7526764, append.shard::integer);
                perform pg_advisory_xact_lock(hashtextextended(append.ordering_key, 0::bigint));
            end if;
        end if;
    end if;
    if append.idempotency_key is not null then
        -- As chapar.limit_waiting does, without the cost of a call.
        if limit_before is null then
            limit_before := current_setting('lock_timeout');
            if limit_before = '0' or limit_before::interval > interval '5 s' then
                was_set := set_config('lock_timeout', '5s', true);
            end if;
        end if;
        insert into chapar.idempotency (tenant, topic, key, event_id, payload_hash)
        values (append.tenant, append.topic, append.idempotency_key, append.event_id, append.payload_hash)
        on conflict do nothing;
        if not found then
            select i.event_id, i.payload_hash into first_id, first_hash
            from chapar.idempotency i
            where i.tenant = append.tenant and i.topic = append.topic and i.key = append.idempotency_key;
            if first_hash is distinct from append.payload_hash then
                raise exception 'the idempotency key % of % was used for another payload, in event %',
                    append.idempotency_key, append.topic, first_id
                    using errcode = 'CHP01',
                          hint = 'derive the key from the business intent, so that another intent has another key';
            end if;
        end if;
    end if;
    if limit_before is not null then
        was_set := set_config('lock_timeout', limit_before, true);
    end if;
    if first_id is not null then
        return first_id;
    end if;
    insert into chapar.outbox (event_id, tenant, topic, ordering_key, shard, aggregate_type, aggregate_id,
                               idempotency_key, correlation_id, causation_id, sealed, headers, body)
    values (append.event_id, append.tenant, append.topic, append.ordering_key, append.shard,
            append.aggregate_type, append.aggregate_id, append.idempotency_key, append.correlation_id,
            append.causation_id, append.sealed, append.headers, append.body);
    return append.event_id;
end
$$;
grant execute on function chapar.append(text, text, text, text, smallint, text, text, text, bytea, text,
                                        text, boolean, text, bytea, boolean) to chapar_app, chapar_engine;

-- A UUID of version 7: 48 bits of milliseconds, then random bits.
create function chapar.uuid_v7() returns text
language sql volatile parallel safe
return encode(
    set_bit(set_bit(
        overlay(uuid_send(gen_random_uuid())
                placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
                from 1 for 6),
        52, 1), 53, 1), 'hex')::uuid::text;
grant execute on function chapar.uuid_v7() to chapar_app, chapar_engine;

-- Whether a subject is in a list of subjects, or of their beginnings with a `*`.
create function chapar.is_listed(subject text, patterns text[]) returns boolean
language sql immutable parallel safe
return exists (select from unnest(patterns) p
               where case when right(p, 1) = '*' then starts_with(subject, left(p, -1)) else subject = p end);
grant execute on function chapar.is_listed(text, text[]) to chapar_app, chapar_engine;

-- The ordering key by the template. The id is inserted last, so that a tenant's name cannot inject a
-- placeholder. The library computes the same.
create function chapar.ordering_key(template text, tenant text, aggregate_id text) returns text
language sql immutable parallel safe
return case when position('{aggregate_id}' in template) = 0 then replace(template, '{tenant}', tenant)
       else replace(split_part(template, '{aggregate_id}', 1), '{tenant}', tenant) || aggregate_id
            || replace(substr(template, position('{aggregate_id}' in template) + 14), '{tenant}', tenant) end;
grant execute on function chapar.ordering_key(text, text, text) to chapar_app, chapar_engine;

-- The entry point for every language: emits an event inside the caller's transaction. It refuses what
-- the relay would put into quarantine later, as far as the database knows the system's rules; each is
-- named by its code, which has a page in the documentation.
--
--   select chapar.emit('melmastoon.reservation.booking.confirmed.v1',
--                      tenant => 'acme', key => 'res_1', payload => '{"reservationId": "res_1"}',
--                      idempotency_key => 'res_1:confirmed:1', producer => 'reservation');
create function chapar.emit(
    subject text, tenant text, key text, payload jsonb,
    idempotency_key text default null, aggregate_type text default '',
    correlation_id text default null, causation_id text default null,
    actor jsonb default null, metadata jsonb default '{}', ai_provenance jsonb default null,
    producer text default null
) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    id           constant text := chapar.uuid_v7();
    body         constant bytea := convert_to(emit.payload::text, 'UTF8');
    bytes        constant integer := octet_length(body);
    rules        chapar.settings%rowtype;
    known        chapar.subjects%rowtype;
    field        text;
    broken       text;
    ordering_key text;
begin
    if coalesce(emit.subject, '') = '' or coalesce(emit.tenant, '') = '' or coalesce(emit.key, '') = ''
       or emit.payload is null then
        raise exception 'chapar.emit needs a subject, a tenant, a key and a payload' using errcode = 'CHP04';
    end if;
    select * into strict rules from chapar.settings;
    if rules.has_catalog then
        select * into known from chapar.subjects s where s.subject = emit.subject;
    end if;
    perform chapar.check_form(emit.tenant);
    -- What the relay reads of these, and could not.
    if jsonb_typeof(emit.metadata) <> 'object'
       or emit.actor is not null and not coalesce(
           emit.actor ->> 'type' in ('user', 'system', 'service', 'api_key', 'service_account')
           and jsonb_typeof(emit.actor -> 'id') = 'string', false)
       or emit.correlation_id ~ '^$|[\x01-\x1f\x7f-\x9f]' or emit.causation_id ~ '^$|[\x01-\x1f\x7f-\x9f]' then
        raise exception 'the metadata, actor, correlation id or causation id of % cannot be used', emit.subject
            using errcode = 'CHP04',
                  hint = 'metadata is an object; an actor has a type (user, system, service, api_key or service_account) '
                         'and an id; ids are not empty and have no control characters';
    end if;
    broken := case
        when emit.subject !~ rules.subject_pattern then
            format('CH1001: the subject %s does not have the form %s', emit.subject, rules.subject_form)
        when rules.idempotency_required and coalesce(emit.idempotency_key, '') = '' then
            format('CH1002: %s has no idempotency key; derive one from the business intent', emit.subject)
        when emit.tenant = 'platform' and rules.platform_subjects is not null
             and not chapar.is_listed(emit.subject, rules.platform_subjects) then
            format('CH1003: %s belongs to no tenant, and platform_subjects does not list it', emit.subject)
        when cardinality(rules.ai_subjects) > 0 and chapar.is_listed(emit.subject, rules.ai_subjects)
             and (jsonb_typeof(emit.ai_provenance) is distinct from 'object' or emit.ai_provenance = '{}') then
            format('CH1005: %s is an AI event and carries no provenance object', emit.subject)
        when octet_length(emit.metadata::text) > rules.max_metadata then
            format('CH1006: the metadata of %s has %s bytes, at most %s are allowed', emit.subject,
                   octet_length(emit.metadata::text), rules.max_metadata)
        when bytes > rules.max_payload and not coalesce(known.thin, false) then
            format('CH1007: the payload of %s has %s bytes, at most %s are allowed; send a reference to the '
                   'facts instead of the facts', emit.subject, bytes, rules.max_payload)
        when rules.has_catalog and known.subject is null then
            format('CH1013: %s is not in the catalog', emit.subject)
        when rules.has_catalog and emit.producer <> known.owner then
            format('CH1014: %s belongs to %s, and %s may not publish it', emit.subject, known.owner, emit.producer)
    end;
    if broken is null then
        foreach field in array rules.tenant_fields loop
            if emit.payload ->> field <> emit.tenant then
                broken := format('CH1004: the payload names the tenant %L in %s, and the event is for %L',
                                 emit.payload ->> field, field, emit.tenant);
            end if;
        end loop;
    end if;
    if broken is not null then
        raise exception '%', broken using errcode = 'CHP04', hint = 'see docs/errors/' || left(broken, 6) || '.md';
    end if;
    ordering_key := chapar.ordering_key(rules.key_template, emit.tenant, emit.key);
    return chapar.append(
        id, emit.tenant, emit.subject, ordering_key, chapar.shard(ordering_key),
        coalesce(emit.aggregate_type, ''), emit.key, emit.idempotency_key, sha256(body),
        coalesce(emit.correlation_id, id), emit.causation_id, false,
        jsonb_build_object('actor', emit.actor, 'metadata', emit.metadata, 'producer', emit.producer,
                           'aiProvenance', emit.ai_provenance)::text, body);
end
$$;
grant execute on function chapar.emit(text, text, text, jsonb, text, text, text, text, jsonb, jsonb, jsonb, text)
    to chapar_app, chapar_engine;
