-- +goose Up

-- How many tasks an endpoint gets in one request, and how long one waits for others. Without them each task has a
-- request of its own.
ALTER TABLE endpoints
  ADD COLUMN batch_max_tasks int CHECK (batch_max_tasks > 0),
  ADD COLUMN batch_max_wait  interval;

-- +goose Down
ALTER TABLE endpoints DROP COLUMN batch_max_tasks, DROP COLUMN batch_max_wait;
