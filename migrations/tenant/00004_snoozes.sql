-- +goose Up

-- Deliveries that workers put off. A node of the version before adds none, and loses those that it
-- adds up: they are figures only.
ALTER TABLE tallies ADD COLUMN snoozes bigint NOT NULL DEFAULT 0;
