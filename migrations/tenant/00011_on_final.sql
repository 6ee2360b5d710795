-- +goose Up
-- +goose StatementBegin

-- Which task tells the end of which other one: the notification of the end of a task at a seq of its
-- journal. target is the type of the notification.
CREATE TABLE notifications (
  type   int      NOT NULL,
  id     bigint   NOT NULL,
  seq    smallint NOT NULL,
  target int      NOT NULL,
  task   bigint   NOT NULL,
  PRIMARY KEY (type, id, seq)
);

-- submit_origin returns the scheme, host and port of a URL, in one spelling; null: it has none.
CREATE FUNCTION submit_origin(url text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT regexp_replace(regexp_replace(lower(substring(url COLLATE "C" FROM '^https?://[^/?#]+')), '^(http://.*):80$', '\1'),
    '^(https://.*):443$', '\1')
$$;

-- submit_check_on_final returns the refusal of an on_final. A node has checked the origin of its URL
-- when it made the target, by the operator's policy; so a target must exist.
CREATE FUNCTION submit_check_on_final(on_final json) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
  url     text;
  origin  text;
  target  text;
  problem text;
BEGIN
  IF json_typeof(on_final) <> 'object' THEN
    RETURN ARRAY['invalid_argument', 'on_final must be an object with a url', 'on_final'];
  END IF;
  SELECT format('on_final.%s ', left(k, 40)) || CASE k
      WHEN 'secret' THEN 'can''t be given by SQL: give it to the task type, or to one task over HTTP, and name the target then'
      ELSE 'is not known; on_final has url, on and target' END INTO problem
  FROM json_object_keys(on_final) k WHERE k NOT IN ('url', 'on', 'target') LIMIT 1;
  url := on_final ->> 'url';
  target := on_final ->> 'target';
  problem := coalesce(problem, CASE
    WHEN coalesce(url, '') = '' OR json_typeof(on_final -> 'url') <> 'string' THEN 'on_final.url is required'
    WHEN octet_length(url) > 1024 THEN format('on_final.url is %s bytes long; the limit is 1024', octet_length(url))
    WHEN octet_length(url) + 5 * (octet_length(url) - octet_length(translate(url, '&<>', ''))) > 2998
      THEN 'on_final.url takes more than 3000 bytes in JSON, where &, < and > take six'
    WHEN url COLLATE "C" !~ '^https?://[A-Za-z0-9._:\[\]-]+([/?][!"$-\[\]-~]*)?$' OR split_part(url, '?', 1) ~ '%(?![0-9A-Fa-f]{2})'
      THEN 'on_final.url must be an absolute https URL such as https://worker.example.com/ended, in ASCII, without user and fragment, and with two hex digits after each % of its path'
    WHEN on_final -> 'on' IS NOT NULL AND json_typeof(on_final -> 'on') <> 'array'
      THEN 'on_final.on must be an array of succeeded, failed and cancelled' END);
  IF problem IS NULL AND on_final -> 'on' IS NOT NULL THEN
    SELECT 'on_final.on must have succeeded, failed and cancelled only, each once' INTO problem
    FROM json_array_elements_text(on_final -> 'on') o
    HAVING count(*) > 3 OR count(DISTINCT o) < count(*) OR NOT coalesce(bool_and(o IN ('succeeded', 'failed', 'cancelled')), true);
  END IF;
  IF problem IS NOT NULL THEN
    RETURN ARRAY['invalid_argument', problem, 'on_final'];
  END IF;
  origin := submit_origin(url);
  target := coalesce(target, 'asyncflow-final-' || encode(substring(sha256(convert_to(origin, 'UTF8')) FROM 1 FOR 8), 'hex'));
  IF NOT EXISTS (SELECT FROM task_types t WHERE t.name = target AND t.spec ->> 'notifies' = origin) THEN
    RETURN ARRAY['not_found', format('on_final has the origin %s, for which there is no target %s: make it by a task type, a '
      'schedule or a task over HTTP with this on_final', left(origin, 300), left(target, 40)), 'on_final'];
  END IF;
  RETURN NULL;
END $$;

-- submit_check_labels returns the refusal of labels that the API would refuse.
CREATE FUNCTION submit_check_labels(labels json) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
  word    constant text := '^[A-Za-z0-9][A-Za-z0-9_.:/-]*$';
  tags    json := labels -> 'tags';
  meta    json := labels -> 'metadata';
  trace   text := labels ->> 'trace';
  problem text;
BEGIN
  problem := CASE WHEN json_typeof(labels) <> 'object' THEN 'labels must be an object'
    WHEN octet_length(labels::text) > 2048 THEN format('labels has %s bytes; the limit is 2048', octet_length(labels::text)) END;
  IF problem IS NULL THEN
    SELECT format('labels.%s is not known; labels has user, tags, metadata and trace', left(k, 40)) INTO problem
    FROM json_object_keys(labels) k WHERE k NOT IN ('user', 'tags', 'metadata', 'trace') LIMIT 1;
  END IF;
  problem := coalesce(problem, CASE
    WHEN labels -> 'user' IS NOT NULL AND json_typeof(labels -> 'user') <> 'string' THEN 'labels.user must be a string'
    WHEN octet_length(labels ->> 'user') NOT BETWEEN 1 AND 255
      THEN format('labels.user is %s bytes long; it must be 1 to 255', octet_length(labels ->> 'user'))
    WHEN json_typeof(tags) <> 'array' THEN 'labels.tags must be an array'
    WHEN json_typeof(meta) <> 'object' THEN 'labels.metadata must be an object'
    WHEN labels -> 'trace' IS NOT NULL AND (json_typeof(labels -> 'trace') <> 'string'
        OR trace COLLATE "C" !~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' OR trace ~ '^...0{32}' OR trace ~ '-0{16}-')
      THEN 'labels.trace must be a W3C traceparent, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' END);
  IF problem IS NULL AND tags IS NOT NULL THEN
    SELECT CASE WHEN count(*) > 16 THEN format('labels.tags has %s entries; the limit is 16', count(*))
      WHEN NOT bool_and(coalesce(json_typeof(e) = 'string' AND octet_length(e #>> '{}') <= 64 AND (e #>> '{}') COLLATE "C" ~ word, false))
        THEN 'labels.tags must have words of up to 64 letters, digits and _ . : / -, which begin with a letter or digit'
      WHEN count(DISTINCT e #>> '{}') < count(*) THEN 'labels.tags has a tag twice' END INTO problem
    FROM json_array_elements(tags) e;
  END IF;
  IF problem IS NULL AND meta IS NOT NULL THEN
    SELECT CASE WHEN count(*) > 16 THEN format('labels.metadata has %s entries; the limit is 16', count(*))
      WHEN count(DISTINCT k) < count(*) THEN 'labels.metadata has a name twice'
      WHEN NOT bool_and(octet_length(k) <= 40 AND k COLLATE "C" ~ word)
        THEN 'labels.metadata must have names of up to 40 letters, digits and _ . : / -, which begin with a letter or digit'
      WHEN NOT bool_and(json_typeof(v) = 'string' AND octet_length(v #>> '{}') <= 255)
        THEN 'labels.metadata must have strings of up to 255 bytes' END INTO problem
    FROM json_each(meta) AS m (k, v);
  END IF;
  RETURN CASE WHEN problem IS NOT NULL THEN ARRAY['invalid_argument', problem, 'labels'] END;
END $$;

-- submit_task gets the parameters on_final and labels. The roles that may call it still may. Whoever
-- may call it can make views that depend on it: these keep the function of before, under another name.
DO $do$
DECLARE
  roles text[];
  role  text;
BEGIN
  SELECT array_agg(r.rolname) INTO roles FROM pg_proc p, aclexplode(p.proacl) a JOIN pg_roles r ON r.oid = a.grantee
  WHERE p.oid = 'submit_task(text,json,text,int,timestamptz,text,interval,json,text)'::regprocedure
    AND a.privilege_type = 'EXECUTE' AND r.oid <> p.proowner;
  BEGIN
    DROP FUNCTION submit_task(text, json, text, int, timestamptz, text, interval, json, text);
  EXCEPTION WHEN dependent_objects_still_exist THEN
    ALTER FUNCTION submit_task(text, json, text, int, timestamptz, text, interval, json, text) RENAME TO submit_task_10;
  END;
  EXECUTE $create$
-- submit_task submits a task in the caller's transaction, and returns its id.
CREATE FUNCTION submit_task(type text, context json, key text DEFAULT NULL, priority int DEFAULT NULL, run_at timestamptz DEFAULT NULL,
  flow_key text DEFAULT NULL, key_window interval DEFAULT NULL, depends_on json DEFAULT NULL, context_from text DEFAULT NULL,
  on_final json DEFAULT NULL, labels json DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  now     timestamptz := clock_timestamp();
  most    submit_limits;
  place   record;
  number  bigint;
  claimed record;
  keep    interval;
  refusal text[];
  late    text[];
  edges   int;
  orders  timestamptz;
  options json;
BEGIN
  <<trying>> -- it is left with a refusal, or the function with an id
  BEGIN
    SELECT * INTO STRICT most FROM submit_limits;
    IF most.refusal IS NOT NULL THEN
      refusal := ARRAY['tenant_suspended', most.refusal, ''];
      EXIT trying;
    END IF;
    refusal := submit_check(type, context, key, priority, run_at, flow_key, key_window, most.context_bytes, now);
    IF depends_on IS NOT NULL OR context_from IS NOT NULL THEN
      late := submit_check_edges(depends_on, context_from);
      refusal := CASE WHEN late IS NULL OR refusal IS NULL THEN coalesce(refusal, late)
        ELSE ARRAY[refusal[1], refusal[2] || '; ' || late[2], refusal[3]] END;
    END IF;
    IF on_final IS NOT NULL THEN
      late := submit_check_on_final(on_final);
      refusal := CASE WHEN late IS NULL OR refusal IS NULL THEN coalesce(refusal, late)
        ELSE ARRAY[refusal[1], refusal[2] || '; ' || late[2], refusal[3]] END;
    END IF;
    IF labels IS NOT NULL THEN
      late := submit_check_labels(labels);
      refusal := CASE WHEN late IS NULL OR refusal IS NULL THEN coalesce(refusal, late)
        ELSE ARRAY[refusal[1], refusal[2] || '; ' || late[2], refusal[3]] END;
    END IF;
    EXIT trying WHEN refusal IS NOT NULL;

    place := submit_place(type);
    IF place.spec IS NULL THEN
      refusal := ARRAY['not_found', 'there is no task type ' || type, 'type'];
      EXIT trying;
    ELSIF place.roll = 0 THEN
      refusal := ARRAY['conflict', 'the database was restored or has failed over, and no node of asyncflow has made new tables for '
        || type || ' yet; try it again', ''];
      EXIT trying;
    ELSIF place.roll IS NULL THEN -- a snapshot shows a type that is gone, or was made again since
      refusal := ARRAY['conflict', 'the task type ' || type || ' has changed since this transaction began; try it again', ''];
      EXIT trying;
    END IF;

    number := (place.roll::bigint << 40) + (1::bigint << 39) + nextval('submit_numbers');
    IF key IS NOT NULL THEN
      keep := (place.spec ->> 'retention')::interval;
      IF key_window > keep THEN
        refusal := ARRAY['invalid_argument', format('key_window is %s; tasks of %s are kept for %s',
          submit_duration(extract(epoch FROM key_window)), type, submit_duration(extract(epoch FROM keep))), 'key_window'];
        EXIT trying;
      END IF;
      claimed := submit_claim(type, key, number, context, now + submit_window(key_window, keep), now);
      IF NOT claimed.same THEN
        refusal := ARRAY['key_reused',
          format('key stands for task %s, which has another context', submit_id(type, claimed.owner)), 'key'];
        EXIT trying;
      ELSIF claimed.owner <> number THEN
        RETURN submit_id(type, claimed.owner);
      END IF;
    END IF;
    refusal := submit_quota(most.pending_tasks);
    EXIT trying WHEN refusal IS NOT NULL;

    edges := nullif(json_array_length(depends_on), 0);
    orders := CASE WHEN run_at > now THEN run_at
      ELSE now - make_interval(secs => coalesce(priority, (place.spec #>> '{stages,0,priority}')::int, 0)) END;
    options := nullif(json_strip_nulls(json_build_object('priority', priority, 'key', key, 'flow_key', flow_key,
      'depends_on', edges, 'context_from', nullif(context_from, ''),
      'on_final', CASE WHEN on_final IS NOT NULL THEN
        json_build_object('url', on_final ->> 'url', 'on', on_final -> 'on', 'target', on_final ->> 'target') END,
      'user', labels -> 'user', 'tags', labels -> 'tags', 'metadata', labels -> 'metadata', 'trace', labels -> 'trace'))::text, '{}')::json;
    IF place.spec -> 'flow' IS NULL THEN
      flow_key := NULL;
    END IF;
    IF edges IS NULL THEN
      PERFORM submit_write(place.table_set, place.type_number, type, number, now, orders, options, context,
        place.spec #>> '{stages,0,name}', flow_key);
    ELSE
      refusal := submit_edges(place.type_number, number, key, depends_on, now);
      EXIT trying WHEN refusal IS NOT NULL;
      PERFORM submit_wait(place.table_set, place.type_number, type, number, now, orders, options, context,
        place.spec #>> '{stages,0,name}', flow_key);
    END IF;
    RETURN submit_id(type, number);
  END trying;
  RAISE EXCEPTION USING MESSAGE = refusal[2], DETAIL = refusal[1], COLUMN = refusal[3], ERRCODE = submit_sqlstate(refusal[1]);
END $$
$create$;
  REVOKE ALL ON FUNCTION submit_task FROM PUBLIC;
  FOREACH role IN ARRAY coalesce(roles, '{}') LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION submit_task TO %I', role);
  END LOOP;
END $do$;

REVOKE ALL ON FUNCTION submit_origin, submit_check_on_final, submit_check_labels FROM PUBLIC;

-- +goose StatementEnd
