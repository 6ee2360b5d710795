-- +goose Up

-- While the failed children of a fan-out are redriven (again isn't null): how many of them the
-- redrive hasn't come to. They don't count as failed. Null: a node that doesn't know the column
-- began the redrive, and none counts.
ALTER TABLE fan_outs ADD COLUMN to_redrive int;
