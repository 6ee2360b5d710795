-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- The last changes of an endpoint's health, in their order: 50 at most. It comes first:
-- a deletion of an endpoint locks endpoints before endpoint_minutes, too.
CREATE TABLE endpoint_changes (
  endpoint uuid        NOT NULL REFERENCES endpoints (id) ON DELETE CASCADE,
  at       timestamptz NOT NULL,
  state    text        NOT NULL CHECK (state IN ('closed', 'open', 'disabled')),
  until    timestamptz,
  reason   text        NOT NULL,
  PRIMARY KEY (endpoint, at)
);

-- Failures by code, and attempts by how long they took, in the order of asyncflow.FailureCode and
-- of the buckets of asyncflow.Latencies; without the zeros at the end.
ALTER TABLE endpoint_minutes ADD COLUMN codes int[] NOT NULL DEFAULT '{}',
  ADD COLUMN latencies int[] NOT NULL DEFAULT '{}';
CREATE INDEX ON endpoint_minutes (at);

-- +goose Down
DROP TABLE endpoint_changes;
DROP INDEX endpoint_minutes_at_idx;
ALTER TABLE endpoint_minutes DROP COLUMN codes, DROP COLUMN latencies;
