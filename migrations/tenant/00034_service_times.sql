-- +goose Up

-- How many attempts of a stage ended in a minute, and how many seconds they had a worker, added up.
-- Nodes of the version before leave both to their default.
ALTER TABLE type_minutes ADD COLUMN attempts bigint NOT NULL DEFAULT 0;
ALTER TABLE type_minutes ADD COLUMN busy double precision NOT NULL DEFAULT 0;
