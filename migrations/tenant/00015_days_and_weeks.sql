-- +goose Up
-- +goose StatementBegin

-- submit_seconds returns the seconds of a duration such as 1h30m or 7d; null: it is none.
CREATE OR REPLACE FUNCTION submit_seconds(duration text) RETURNS numeric
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN duration = '0' THEN 0
    WHEN length(duration) <= 40 AND duration ~ '^-?(([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|ms|s|m|h|d|w))+$' THEN
      CASE WHEN duration LIKE '-%' THEN -1 ELSE 1 END * (
        SELECT sum(m[1]::numeric * CASE m[2] WHEN 'w' THEN 604800 WHEN 'd' THEN 86400 WHEN 'h' THEN 3600 WHEN 'm' THEN 60
          WHEN 's' THEN 1 WHEN 'ms' THEN 0.001 WHEN 'ns' THEN 0.000000001 ELSE 0.000001 END)
        FROM regexp_matches(duration, '([0-9.]+)(ns|us|µs|ms|s|m|h|d|w)', 'g') m)
  END
$$;

-- +goose StatementEnd
