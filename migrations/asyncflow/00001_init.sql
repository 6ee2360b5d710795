-- +goose Up

-- What belongs to no tenant. The names are unqualified, as the search path is the schema asyncflow.

-- +goose StatementBegin
-- history names the history of a table: which cluster it is in, which timeline of that, and which
-- table it is. It is another one after a failover and after a restored backup or dump: what was
-- handed out before may then be unknown here. A part that this Postgres doesn't tell is left out.
CREATE FUNCTION history(relation oid) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  cluster  text := '';
  timeline text := '';
BEGIN
  BEGIN
    SELECT system_identifier::text INTO cluster FROM pg_control_system();
  EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN NULL;
  END;
  BEGIN
    timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
  EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN NULL;
  END;
  RETURN format('%s.%s.%s', cluster, timeline, relation);
END $$;
-- +goose StatementEnd

-- Tenants -----------------------------------------------------------------------------------------

-- Each tenant is a schema; schema_version is its newest migration. version grows with every change
-- of its task types, rolls or endpoints; nodes compare it to know what to read again. quotas are
-- those of the tenant's own. A suspended tenant is not leased from. A deleted one isn't either, and
-- from drop_at on it is dropped: dropping_at is since when, and there is no way back from then on.
-- Tokens issued before tokens_from are refused: they are of an earlier tenant of that name. role is
-- the database role that a tenant's work is done under, and that owns its schema; null where there
-- is none, with --database-roles=off. Two databases of a cluster share it if one was copied from
-- the other. grants is what the role has granted the base role, as a hash; null: it isn't known. A
-- program that grants something else runs its grants.
CREATE TABLE tenants (
  slug           text        PRIMARY KEY CHECK (slug ~ '^[a-z][a-z0-9_-]{0,39}$'),
  schema_version bigint      NOT NULL,
  version        bigint      NOT NULL DEFAULT 1,
  created_at     timestamptz NOT NULL DEFAULT now(),
  quotas         json        NOT NULL DEFAULT '{}',
  suspended_at   timestamptz,
  suspend_reason text,
  deleted_at     timestamptz,
  drop_at        timestamptz,
  dropping_at    timestamptz,
  tokens_from    timestamptz,
  role           text        UNIQUE,
  grants         text,
  CHECK ((deleted_at IS NULL) = (drop_at IS NULL)),
  CHECK (dropping_at IS NULL OR deleted_at IS NOT NULL)
);

-- How far the ids and versions of tenants went that were dropped. One that is made again
-- goes on after them, so that no id ever names two tasks.
CREATE TABLE retired_tenants (
  slug       text        PRIMARY KEY,
  end_pos    int         NOT NULL,
  version    bigint      NOT NULL,
  dropped_at timestamptz NOT NULL
);

-- In which history the last tenant was made, and where the numbers of its tasks begin: at 1, or in
-- another history than the first one far from there. A tenant of that name may have been in the
-- history that was lost.
CREATE TABLE numbering (
  one          boolean PRIMARY KEY DEFAULT true CHECK (one),
  history      text    NOT NULL,
  first_number bigint  NOT NULL CHECK (first_number > 0)
);
INSERT INTO numbering (history, first_number) VALUES (history('numbering'::regclass), 1);

-- How many tasks of a tenant count in its quota submits_per_second that nobody submitted over HTTP:
-- tasks of ticks, and children that were not known when their parent was submitted. total only
-- grows. The nodes that take requests charge the tenant for what was added since they last looked.
CREATE TABLE submit_charges (
  tenant text   PRIMARY KEY,
  total  bigint NOT NULL
);

-- Roles belong to all databases of a cluster, so their names begin with a prefix that is
-- this database's own. base_role is the role for what belongs to no tenant; null until
-- it was made.
CREATE TABLE fence (
  one       boolean PRIMARY KEY DEFAULT true CHECK (one),
  prefix    text    NOT NULL CHECK (prefix ~ '^asyncflow_[0-9a-f]{8}$'),
  base_role text
);
INSERT INTO fence (prefix) VALUES ('asyncflow_' || substr(gen_random_uuid()::text, 1, 8));

-- Nodes -------------------------------------------------------------------------------------------

-- Each running node writes its row every few seconds.
CREATE TABLE nodes (
  id         text        PRIMARY KEY,
  roles      text        NOT NULL,
  version    text        NOT NULL,
  started_at timestamptz NOT NULL,
  seen_at    timestamptz NOT NULL
);

-- The last run of each job of governance, on whichever node. spec is the schedule of
-- the node that started last; what is null is so until the job has run for the first
-- time. failures counts the runs that failed since one ended well.
CREATE TABLE jobs (
  name         text        PRIMARY KEY,
  spec         text        NOT NULL,
  node         text,
  started_at   timestamptz,
  duration     real,
  rows         bigint      NOT NULL DEFAULT 0,
  error        text,
  failures     int         NOT NULL DEFAULT 0,
  succeeded_at timestamptz
);

-- Audit -------------------------------------------------------------------------------------------

-- Who did what that belongs to no tenant: operators' calls, the command line's
-- work in the database, calls that were denied without a tenant being known. The columns
-- are those of a tenant's table.
CREATE TABLE audit (
  id          uuid        PRIMARY KEY,
  at          timestamptz NOT NULL,
  origin      text        NOT NULL CHECK (origin IN ('api', 'cli')),
  tenant      text,
  subject     text,
  token_id    text,
  issuer      text,
  scopes      text,
  action      text        NOT NULL,
  object_type text,
  object      text,
  address     text,
  proxy       text,
  request_id  text,
  user_agent  text,
  outcome     text        NOT NULL CHECK (outcome IN ('done', 'refused', 'denied', 'failed')),
  status      smallint,
  code        text,
  detail      json,
  claimed     json,
  calls       bigint      NOT NULL DEFAULT 1 CHECK (calls > 0),
  last_at     timestamptz
);
CREATE INDEX ON audit (at, id);

-- Rows are only ever added: an UPDATE changes nothing, and a DELETE passes over what is
-- younger than a day, whoever asks, the owner and superusers too. A role that may only
-- INSERT and SELECT can do all that requests need.
CREATE RULE audit_never_changes AS ON UPDATE TO audit DO INSTEAD NOTHING;
CREATE RULE audit_keeps_a_day AS ON DELETE TO audit WHERE old.at > now() - interval '1 day' DO INSTEAD NOTHING;
REVOKE UPDATE, TRUNCATE ON audit FROM CURRENT_USER;
