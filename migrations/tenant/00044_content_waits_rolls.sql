-- +goose Up

-- The job erase leaves alone the rolls that another transaction holds, however many of their tasks
-- are due.
CREATE INDEX content_waits_roll ON content_waits (type, (id >> 40), since);
