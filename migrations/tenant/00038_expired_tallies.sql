-- +goose Up

-- How many failed tasks have expired: what a transaction counted, or a sum of such rows. A redrive
-- subtracts. Only types with lifetimes have rows, so that tallies of others need no further column,
-- and so that a node of the version before, which adds tallies up, loses nothing.
CREATE TABLE expired_tallies (
  type    text   NOT NULL,
  expired bigint NOT NULL
);
