-- +goose Up

-- What a node knows of what task types may use; null: it is of a version that doesn't say. A type
-- may begin to use only what all running nodes know.
ALTER TABLE nodes ADD COLUMN knows text[];
