-- +goose Up

-- An empty key is refused, as the API does: it looked like none, in silence.
-- +goose StatementBegin
-- submit_check refuses what the API would refuse, in its words.
CREATE OR REPLACE FUNCTION submit_check(type text, context json, key text, priority int, run_at timestamptz, flow_key text,
  key_window interval, context_limit bigint, now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  size     bigint := octet_length(convert_to(context::text, 'UTF8'));
  seconds  numeric := extract(epoch FROM key_window);
  fields   text[] := '{}';
  problems text[] := '{}';
  problem  text;
BEGIN
  problem := CASE
    WHEN coalesce(type, '') = '' THEN 'is required'
    WHEN octet_length(type) > 40 THEN format('is %s characters long; the limit is 40', octet_length(type))
    WHEN type COLLATE "C" !~ '^[a-z]' THEN 'must start with a lower-case letter'
    WHEN type COLLATE "C" !~ '^[a-z0-9_-]+$' THEN 'may hold lower-case letters, digits, - and _ only'
  END;
  fields := fields || 'type'::text; problems := problems || problem;

  problem := CASE
    WHEN context IS NULL THEN 'is required'
    WHEN size > context_limit THEN format('is %s bytes; the limit is %s', size, context_limit)
    WHEN submit_depth(context::text, 128) > 128 THEN 'is nested more than 128 deep'
  END;
  fields := fields || 'context'::text; problems := problems || problem;

  problem := CASE WHEN priority NOT BETWEEN 0 AND 31536000
    THEN format('is %s; it must be 0 to 31536000 seconds (a year)', priority) END;
  fields := fields || 'priority'::text; problems := problems || problem;

  problem := CASE
    WHEN key = '' THEN 'must not be empty'
    WHEN octet_length(key) > 255 THEN format('is %s bytes long; the limit is 255', octet_length(key))
  END;
  fields := fields || 'key'::text; problems := problems || problem;

  problem := CASE
    WHEN key = '' OR octet_length(key) > 255 THEN NULL
    WHEN seconds <> 0 AND key IS NULL THEN 'needs a key'
    WHEN seconds NOT BETWEEN 0 AND 15552000 THEN format('is %s; it must be up to 4320h0m0s (180 days)', submit_duration(seconds))
  END;
  fields := fields || 'key_window'::text; problems := problems || problem;

  problem := CASE
    WHEN flow_key = '' THEN 'must not be empty'
    WHEN octet_length(flow_key) > 255 THEN format('is %s bytes long; the limit is 255', octet_length(flow_key))
  END;
  fields := fields || 'flow_key'::text; problems := problems || problem;

  problem := CASE WHEN run_at > now + interval '365 days' THEN 'is more than 8760h0m0s (a year) ahead' END;
  fields := fields || 'run_at'::text; problems := problems || problem;

  PERFORM submit_refuse(CASE WHEN size > context_limit THEN 'too_large' ELSE 'invalid_argument' END,
    string_agg(field || ' ' || what, '; ' ORDER BY i), (array_agg(field ORDER BY i))[1])
  FROM unnest(fields, problems) WITH ORDINALITY AS p (field, what, i) WHERE what IS NOT NULL HAVING count(*) > 0;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
-- submit_check refuses what the API would refuse, in its words.
CREATE OR REPLACE FUNCTION submit_check(type text, context json, key text, priority int, run_at timestamptz, flow_key text,
  key_window interval, context_limit bigint, now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  size     bigint := octet_length(convert_to(context::text, 'UTF8'));
  seconds  numeric := extract(epoch FROM key_window);
  fields   text[] := '{}';
  problems text[] := '{}';
  problem  text;
BEGIN
  problem := CASE
    WHEN coalesce(type, '') = '' THEN 'is required'
    WHEN octet_length(type) > 40 THEN format('is %s characters long; the limit is 40', octet_length(type))
    WHEN type COLLATE "C" !~ '^[a-z]' THEN 'must start with a lower-case letter'
    WHEN type COLLATE "C" !~ '^[a-z0-9_-]+$' THEN 'may hold lower-case letters, digits, - and _ only'
  END;
  fields := fields || 'type'::text; problems := problems || problem;

  problem := CASE
    WHEN context IS NULL THEN 'is required'
    WHEN size > context_limit THEN format('is %s bytes; the limit is %s', size, context_limit)
    WHEN submit_depth(context::text, 128) > 128 THEN 'is nested more than 128 deep'
  END;
  fields := fields || 'context'::text; problems := problems || problem;

  problem := CASE WHEN priority NOT BETWEEN 0 AND 31536000
    THEN format('is %s; it must be 0 to 31536000 seconds (a year)', priority) END;
  fields := fields || 'priority'::text; problems := problems || problem;

  problem := CASE WHEN octet_length(key) > 255 THEN format('is %s bytes long; the limit is 255', octet_length(key)) END;
  fields := fields || 'key'::text; problems := problems || problem;

  problem := CASE
    WHEN octet_length(key) > 255 THEN NULL
    WHEN seconds <> 0 AND coalesce(key, '') = '' THEN 'needs a key'
    WHEN seconds NOT BETWEEN 0 AND 15552000 THEN format('is %s; it must be up to 4320h0m0s (180 days)', submit_duration(seconds))
  END;
  fields := fields || 'key_window'::text; problems := problems || problem;

  problem := CASE WHEN octet_length(flow_key) > 255 THEN format('is %s bytes long; the limit is 255', octet_length(flow_key)) END;
  fields := fields || 'flow_key'::text; problems := problems || problem;

  problem := CASE WHEN run_at > now + interval '365 days' THEN 'is more than 8760h0m0s (a year) ahead' END;
  fields := fields || 'run_at'::text; problems := problems || problem;

  PERFORM submit_refuse(CASE WHEN size > context_limit THEN 'too_large' ELSE 'invalid_argument' END,
    string_agg(field || ' ' || what, '; ' ORDER BY i), (array_agg(field ORDER BY i))[1])
  FROM unnest(fields, problems) WITH ORDINALITY AS p (field, what, i) WHERE what IS NOT NULL HAVING count(*) > 0;
END $$;
-- +goose StatementEnd
