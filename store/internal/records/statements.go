package records

// The hot statements. Each names one tenant's schema, holds no
// INSERT inside a CTE, and takes times as parameters, so that a distributed
// Postgres can route it to the node that keeps the tenant. TableNames.SQL fills in the
// names in braces.

// InsertTaskSQL adds the immutable rows of new tasks of a type. It fails by a division by zero if
// the type was deleted: its tables go on for other types. The longest columns come first, so that
// pgx copies less while its buffers grow.
const InsertTaskSQL = `
INSERT INTO {task} (context, id, created_at, order_time, options, type)
SELECT u.*, $6 FROM unnest($1::text[], $2::bigint[], $3::timestamptz[], $4::timestamptz[],
  $5::json[]) u` + typeExists

// InsertOneTaskSQL is InsertTaskSQL for one task.
const InsertOneTaskSQL = `
INSERT INTO {task} (context, id, created_at, order_time, options, type)
SELECT $1::text, $2::bigint, $3::timestamptz, $4::timestamptz, $5::json, $6` + typeExists

const typeExists = `
WHERE (SELECT 1 / count(*) FROM {types} WHERE number = $6::int) = 1`

// InsertTaskAgainSQL repeats an insert after an unknown commit, and returns the rows that were
// missing.
const InsertTaskAgainSQL = InsertTaskSQL + `
ON CONFLICT DO NOTHING
RETURNING id`

// insertReadySQL adds token rows that a dispatcher may lease.
const insertReadySQL = `
INSERT INTO {ready} (order_time, id, seq, stage, attempt, type)
SELECT u.*, $3, $4, $5, $6 FROM unnest($1::timestamptz[], $2::bigint[]) u`

// insertOneReadySQL adds one row.
const insertOneReadySQL = `
INSERT INTO {ready} (order_time, id, key, since, seq, stage, attempt, type)
VALUES ($1, $2, $7, $8, $3, $4, $5, $6)`

// insertFullReadySQL adds rows that may have a flow key and a since.
const insertFullReadySQL = `
INSERT INTO {ready} (order_time, id, key, since, seq, stage, attempt, type)
SELECT u.*, $3, $4, $5, $6
FROM unnest($1::timestamptz[], $2::bigint[], $7::text[], $8::timestamptz[]) u`

// insertWaitSQL adds token rows of tasks that wait.
const insertWaitSQL = `
INSERT INTO {wait} (order_time, id, seq, stage, attempt, reason, until, key, since, type)
SELECT * FROM unnest($1::timestamptz[], $2::bigint[], $3::smallint[], $4::text[], $5::smallint[],
  $6::text[], $7::timestamptz[], $8::text[], $9::timestamptz[], $10::int[])`

// insertRuledWaitSQL is insertWaitSQL, with the rules of who may claim the tasks.
const insertRuledWaitSQL = `
INSERT INTO {wait} (order_time, id, seq, stage, attempt, reason, until, key, since, type, rules)
SELECT order_time, id, seq, stage, attempt, reason, until, key, since, type, rules::jsonb
FROM unnest($1::timestamptz[], $2::bigint[], $3::smallint[], $4::text[], $5::smallint[],
  $6::text[], $7::timestamptz[], $8::text[], $9::timestamptz[], $10::int[], $11::text[])
  AS u (order_time, id, seq, stage, attempt, reason, until, key, since, type, rules)`

// TakeReadySQL takes the first due token rows in order, and returns them in any order. It skips
// rows that another dispatcher locks. The ARRAY subquery runs once, before the rows are deleted by
// their ctid (2.7 µs of the server a row; joined to a CTE 3.6). $3 is the order_time to begin at:
// see package lowwater. The last column is since when the task is due.
const TakeReadySQL = `
DELETE FROM {ready} r WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM {ready}
  WHERE type = $4 AND order_time <= $1 AND order_time >= $3
  ORDER BY order_time, id
  LIMIT $2
  FOR UPDATE SKIP LOCKED))
RETURNING r.id, r.seq, r.stage, r.attempt, r.order_time, coalesce(r.since, r.order_time)`

// HeadSQL reads when the next task is due, from a time on.
const HeadSQL = `SELECT order_time FROM {ready} WHERE type = $2 AND order_time >= $1 ` +
	`ORDER BY order_time, id ` +
	`LIMIT 1`

// HeadsSQL reads when the next tasks are due.
const HeadsSQL = `SELECT order_time FROM {ready} WHERE type = $2 AND order_time >= $1 ` +
	`ORDER BY order_time, id ` +
	`LIMIT $3`

// PayloadsSQL reads the options and contexts of tasks in their first attempt, and when they were
// submitted. The LIMIT leaves the
// planner one plan, a walk down the index for each id. Otherwise it might read all tasks of the
// type, if a vacuum has seen the table empty.
const PayloadsSQL = `
SELECT t.* FROM unnest($1::bigint[]) AS u (id), LATERAL (
  SELECT id, options, context, created_at FROM {task} WHERE type = $2 AND id = u.id LIMIT 1) t`

// LaterPayloadsSQL reads the options and contexts of later attempts, and their checkpoints with the
// stages of these. A context is the latest output of a stage, otherwise the task's own context.
const LaterPayloadsSQL = `
SELECT t.id, {options} AS options, coalesce(o.output, t.context) AS context,
  t.created_at, c.stage, c.document
FROM unnest($1::bigint[]) AS u (id), LATERAL (
  SELECT * FROM {task} WHERE type = $2 AND id = u.id LIMIT 1) t LEFT JOIN LATERAL (
  SELECT j.output FROM {journal} j
  WHERE j.type = t.type AND j.id = t.id AND j.output IS NOT NULL
  ORDER BY j.seq DESC LIMIT 1) o ON true` + CheckpointJoin

// CheckpointJoin adds the checkpoint c of a task t to the FROM of a statement.
const CheckpointJoin = ` LEFT JOIN LATERAL (
  SELECT k.stage, k.document FROM {checkpoints} k
  WHERE k.type = t.type AND k.id = t.id AND ` + CheckpointCountsSQL + `
  LIMIT 1) c ON true`

const insertLeaseSQL = `
INSERT INTO {lease} (id, seq, stage, attempt, until, endpoint, node, leased_at, type, unsent)
SELECT id, $2, $3, $4, $5, $6, $7, $8, $9, $10 FROM unnest($1::bigint[]) id`

// insertOneLeaseSQL adds one lease row. Postgres starts it in half the time of insertLeaseSQL.
const insertOneLeaseSQL = `
INSERT INTO {lease} (id, key, seq, stage, attempt, until, endpoint, node, leased_at, type, unsent)
VALUES ($1, $11, $2, $3, $4, $5, $6, $7, $8, $9, $10)`

// insertKeyedLeaseSQL adds lease rows that have a flow key.
const insertKeyedLeaseSQL = `
INSERT INTO {lease} (id, key, seq, stage, attempt, until, endpoint, node, leased_at, type, unsent)
SELECT u.*, $2, $3, $4, $5, $6, $7, $8, $9, $10 FROM unnest($1::bigint[], $11::text[]) u`

// InsertClaimSQL adds lease rows of tasks that claimers ask for.
const InsertClaimSQL = `
INSERT INTO {lease} (id, seq, attempt, claimer, subject, worker, stage, until, node, leased_at,
  type)
SELECT u.*, $7, $8, $9, $10, $11
FROM unnest($1::bigint[], $2::smallint[], $3::smallint[], $4::text[], $5::text[], $6::text[]) u`

// TakeLeaseSQL ends leases, but only if their seq still matches: this fences off superseded
// attempts. Conditions of this form leave the planner one plan: a walk down the index for each id.
// With any other form it scans all leases of the type for each id, after a vacuum that saw the
// table empty (measured with 400 leases and 100 ids: 0.2 ms, otherwise 8.8 ms).
const TakeLeaseSQL = `
DELETE FROM {lease} l
USING unnest($1::bigint[], $2::smallint[], $3::int[]) AS u (id, seq, type)
WHERE l.type = ANY (ARRAY[u.type]) AND l.id BETWEEN u.id AND u.id AND l.seq = u.seq
RETURNING l.id`

// EndLeasesSQL ends $3 leases in a transaction that is all or nothing: it fails by a division by
// zero unless all of them stand.
const EndLeasesSQL = `
WITH ended AS (
  DELETE FROM {lease} l
  USING unnest($1::bigint[], $2::smallint[], $4::int[]) AS u (id, seq, type)
  WHERE l.type = ANY (ARRAY[u.type]) AND l.id BETWEEN u.id AND u.id AND l.seq = u.seq
  RETURNING 1)
SELECT 1 / (CASE WHEN count(*) = $3::bigint THEN 1 ELSE 0 END) FROM ended`

// EndOneLeaseSQL is EndLeasesSQL for one lease.
const EndOneLeaseSQL = `
WITH ended AS (
  DELETE FROM {lease} WHERE type = $3 AND id = $1 AND seq = $2
  RETURNING 1)
SELECT 1 / count(*) FROM ended`

// ExtendLeaseSQL is not a transition: it moves the end of leases that still stand and, if an
// expected end is given, still have it. If the end has moved on since the caller knew it, that was
// for a later report: then this one doesn't move it back.
const ExtendLeaseSQL = `
UPDATE {lease} l
SET until = CASE WHEN l.until > u.knew THEN greatest(l.until, u.until) ELSE u.until END
FROM unnest($1::bigint[], $2::smallint[], $3::timestamptz[], $4::timestamptz[], $5::int[],
  $6::timestamptz[]) AS u (id, seq, until, had, type, knew)
WHERE l.type = ANY (ARRAY[u.type]) AND l.id BETWEEN u.id AND u.id AND l.seq = u.seq
  AND (u.had IS NULL OR l.until = u.had)
RETURNING l.type, l.id, l.seq`

// ExtendSeenSQL is ExtendLeaseSQL for extensions that also tell of a heartbeat, the worker, or the
// endpoint. No index has these columns, so the new row stays in the page of the old one (HOT).
const ExtendSeenSQL = `
UPDATE {lease} l
SET until = CASE WHEN l.until > u.knew THEN greatest(l.until, u.until) ELSE u.until END,
  ` + seenSQL + `
FROM unnest($1::bigint[], $2::smallint[], $3::timestamptz[], $4::timestamptz[], $5::int[],
  $6::timestamptz[], $7::timestamptz[], $8::text[], $9::uuid[])
  AS u (id, seq, until, had, type, knew, beat, worker, sent_to)
WHERE l.type = ANY (ARRAY[u.type]) AND l.id BETWEEN u.id AND u.id AND l.seq = u.seq
  AND (u.had IS NULL OR l.until = u.had)
RETURNING l.type, l.id, l.seq`

const seenSQL = `beat_at = coalesce(u.beat, l.beat_at), worker = coalesce(u.worker, l.worker),
  sent_to = coalesce(u.sent_to, l.sent_to)`

// ExtendCheckedSQL is ExtendSeenSQL for unconditional extensions with checkpoints.
var ExtendCheckedSQL = WriteCheckpointsSQL(`
  UPDATE {lease} l
  SET until = CASE WHEN l.until > u.knew THEN greatest(l.until, u.until) ELSE u.until END,
    `+seenSQL+`
  FROM unnest($1::bigint[], $2::smallint[], $3::timestamptz[], $4::int[], $5::text[],
    $6::timestamptz[], $8::timestamptz[], $9::timestamptz[], $10::text[], $11::uuid[])
    AS u (id, seq, until, type, document, at, knew, beat, worker, sent_to)
  WHERE l.type = ANY (ARRAY[u.type]) AND l.id BETWEEN u.id AND u.id AND l.seq = u.seq
  RETURNING l.type, l.id, l.seq, l.stage, u.at, u.document`, "$7")

const insertJournalSQL = `
INSERT INTO {journal}
  (id, duration, next_time, at, seq, stage, attempt, outcome, final, endpoint, status, type)
SELECT u.*, $4, $5, $6, $7, $8, $9, $10, $11, $12
FROM unnest($1::bigint[], $2::real[], $3::timestamptz[]) u`

// insertTextsJournalSQL adds rows that may have an error or an output.
const insertTextsJournalSQL = `
INSERT INTO {journal}
  (id, duration, next_time, error, output, at, seq, stage, attempt, outcome, final, endpoint,
   status, type)
SELECT u.*, $4, $5, $6, $7, $8, $9, $10, $11, $12
FROM unnest($1::bigint[], $2::real[], $3::timestamptz[], $13::text[], $14::text[]) u`

// insertLocationsJournalSQL adds rows of several workers and nodes, which may have errors or
// outputs.
const insertLocationsJournalSQL = `
INSERT INTO {journal}
  (id, duration, next_time, error, output, endpoint, at, seq, stage, attempt, outcome, final,
   status, type)
SELECT u.*, $4, $5, $6, $7, $8, $9, $10, $11
FROM unnest($1::bigint[], $2::real[], $3::timestamptz[], $12::text[], $13::text[], $14::text[]) u`

// insertOneJournalSQL adds one row.
const insertOneJournalSQL = `
INSERT INTO {journal}
  (id, duration, next_time, error, output, at, seq, stage, attempt, outcome, final, endpoint,
   status, type)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`

// InsertTallySQL adds the counts of a transaction.
const InsertTallySQL = `
INSERT INTO {tallies}
  (type, at, submitted, attempts, failures, snoozes, succeeded, failed, cancelled)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`

// InsertExpiredSQL adds how many failed tasks of a transaction have expired.
const InsertExpiredSQL = `INSERT INTO {expired_tallies} (type, expired) VALUES ($1, $2)`
