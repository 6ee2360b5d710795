-- +goose Up

-- The times in which some node recorded the history of tenants: the job history extends the newest
-- row, or begins another one after a gap. Nodes of the version before write nothing here.
CREATE TABLE history_spans (
  since timestamptz PRIMARY KEY,
  until timestamptz NOT NULL CHECK (until >= since)
);
