-- +goose Up

-- Each task counts twice, and an index on the counts took more than half of that: those who read
-- tallies add up many types at once, and the job fold keeps them few.
DROP INDEX tallies_type_at_idx;

-- +goose Down

CREATE INDEX ON tallies (type, at);
