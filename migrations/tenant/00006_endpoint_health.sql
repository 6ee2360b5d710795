-- +goose Up

-- How the attempts at an endpoint went, added up by minute and kept for an hour.
CREATE TABLE endpoint_minutes (
  endpoint uuid        NOT NULL REFERENCES endpoints (id) ON DELETE CASCADE,
  at       timestamptz NOT NULL,
  attempts int         NOT NULL,
  failures int         NOT NULL,
  PRIMARY KEY (endpoint, at)
) WITH (fillfactor = 50);

-- +goose Down
DROP TABLE endpoint_minutes;
