-- +goose Up

-- What was seen of a running attempt: when its last heartbeat came, the name that its worker gave,
-- and the endpoint that got it, if its lease is for any of several. Nodes of the version before
-- write none of them.
ALTER TABLE lease
  ADD COLUMN beat_at timestamptz,
  ADD COLUMN worker  text,
  ADD COLUMN sent_to uuid;
