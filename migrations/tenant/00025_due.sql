-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- What is due is found beside many rows that are due later.
CREATE INDEX ON outbox (due, seq);

-- +goose Down
DROP INDEX outbox_due_seq_idx;
