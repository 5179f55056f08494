-- The roles, which belong to the whole cluster, and the schemas, which belong to chapar_owner.
-- `migrate apply` runs this before every migration; it changes nothing that is there.
do $$
declare
    role_name   text;
    schema_name text;
    -- Since version 16 the creator of a role is a member that may not become it.
    right_needed constant text :=
        case when current_setting('server_version_num')::integer >= 160000 then 'SET' else 'MEMBER' end;
begin
    foreach role_name in array array['chapar_owner', 'chapar_app', 'chapar_engine'] loop
        if not exists (select from pg_roles where rolname = role_name) then
            begin
                execute format('create role %I nologin', role_name);
            exception
                -- Another database may be migrating right now.
                when duplicate_object or unique_violation then null;
                when insufficient_privilege then
                    raise exception 'the role % is missing and % may not create it', role_name, current_user
                        using hint = format('have an administrator run: create role %I nologin; grant %I to %I;',
                                            role_name, role_name, current_user);
            end;
        end if;
        if not pg_has_role(current_user, role_name, right_needed) then
            begin
                execute format('grant %I to current_user', role_name);
            exception
                when insufficient_privilege then
                    raise exception '% may not become the role %, which migrations need', current_user, role_name
                        using hint = format('have an administrator run: grant %I to %I;', role_name, current_user);
            end;
        end if;
    end loop;
    -- Not `if not exists`, which needs the right to create also where there is nothing to create.
    foreach schema_name in array array['chapar', 'chapar_migrations'] loop
        if not exists (select from pg_namespace where nspname = schema_name) then
            execute format('create schema %I authorization chapar_owner', schema_name);
        end if;
    end loop;
end
$$;
