-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- What transactions lock (FOR UPDATE) so that one of a kind runs at a time. See store/lock.go.
CREATE TABLE locks (
  name   varchar(20) NOT NULL,
  number int         NOT NULL,
  PRIMARY KEY (name, number)
);

-- Limited leases of a type have a lock, made with the type.
INSERT INTO locks SELECT 'lease', number FROM task_types;

-- +goose Down
DROP TABLE locks;
