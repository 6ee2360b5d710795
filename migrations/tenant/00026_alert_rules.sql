-- +goose Up

-- Alerts count the tasks that failed for good within a time. Few tallies have some.
CREATE INDEX tallies_failed ON tallies (at) WHERE failed > 0;

-- Since when a failed task has blocked its flow key; for rows of before, since this migration. Nodes
-- of the version before leave it to its default.
ALTER TABLE flow_blocks ADD COLUMN since timestamptz NOT NULL DEFAULT now();

-- What a notice says beside its value: an asyncflow.AlertDetail.
ALTER TABLE alert_episodes ADD COLUMN detail json;
