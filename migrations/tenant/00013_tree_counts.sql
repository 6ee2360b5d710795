-- +goose Up

-- Of a fan-out with a tree: when tasks were last added to the count, or it was taken anew.
ALTER TABLE fan_outs ADD COLUMN tree_at timestamptz;
