-- +goose Up

-- Since remaining_since no task of a roll was live but the remaining ones. The retention of all
-- others counts from it, see idle_since. Null: it isn't known, or the others are gone. If only
-- remaining_ids is null, the others are gone but for some of their rows in other tables.
ALTER TABLE rolls
  ADD COLUMN remaining_since timestamptz,
  ADD COLUMN remaining_types int[],
  ADD COLUMN remaining_ids   bigint[];
UPDATE rolls SET remaining_since = idle_since, remaining_types = '{}', remaining_ids = '{}'
WHERE idle_since IS NOT NULL;
