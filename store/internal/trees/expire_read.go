package trees

import (
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// tokenRow is what the token row of a live task says.
type tokenRow struct {
	seq     int
	stage   string
	attempt int
	since   time.Time            // when it was due there; of a leased task, when it was leased
	reason  asyncflow.WaitReason // "": it is in ready, or leased
	until   *time.Time           // when its lease runs out; nil: it has none
	node    string               // of its lease
	worker  string
	table   tokenTable
	row     pgtype.TID // which stays while the row is locked
}

// tokenTable is a table of token rows.
type tokenTable struct {
	name     string // in braces
	position int
}

// The form of these statements leaves the planner one plan, as that of LockWaitSQL does. A row that
// somebody else has locked is skipped: so an expiry waits for nobody with token rows of its own.
const (
	lockDueLeaseSQL = `
SELECT k.id, k.seq, k.stage, k.attempt, k.leased_at, '', k.until, k.node,
  coalesce(k.worker, ''), k.ctid
FROM unnest($1::bigint[]) AS u (id), LATERAL (
  SELECT ctid, * FROM {lease} WHERE type = $2 AND id BETWEEN u.id AND u.id
  ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) k`
	lockDueWaitSQL = `
SELECT k.id, k.seq, k.stage, k.attempt, coalesce(k.since, k.order_time), k.reason,
  NULL::timestamptz, '', '', k.ctid
FROM unnest($1::bigint[]) AS u (id), LATERAL (
  SELECT ctid, * FROM {wait} WHERE type = $2 AND id BETWEEN u.id AND u.id
  ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) k`
	LockDueReadySQL = `
SELECT k.id, k.seq, k.stage, k.attempt, coalesce(k.since, k.order_time), '', NULL::timestamptz,
  '', '', k.ctid
FROM unnest($1::timestamptz[], $2::bigint[]) AS u (order_time, id), LATERAL (
  SELECT ctid, * FROM {ready} WHERE type = $3 AND order_time = u.order_time
    AND id BETWEEN u.id AND u.id
  ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) k`
)

// lockTokens locks the token rows of tasks of one roll, wherever they are.
func (x *expiry) lockTokens(ids []int64) (map[int64]tokenRow, error) {
	all := make(map[int64]tokenRow, len(ids))
	lock := func(table tokenTable, sql string, args ...any) error {
		rows, _ := x.tx.Query(x.ctx, x.t.SQL(table.position, sql), args...)
		var id int64
		var p tokenRow
		_, err := pgx.ForEachRow(rows, []any{&id, &p.seq, &p.stage, &p.attempt, &p.since,
			&p.reason, &p.until, &p.node, &p.worker, &p.row}, func() error {
			p.stage, p.attempt = x.t.Mapped(p.stage, p.attempt)
			p.table = table
			all[id] = p
			p = tokenRow{}
			return nil
		})
		return err
	}
	if err := lock(tokenTable{"{lease}", 0}, lockDueLeaseSQL, ids, x.t.Number()); err != nil {
		return nil, err
	}
	if err := lock(tokenTable{"{wait}", 0}, lockDueWaitSQL, ids, x.t.Number()); err != nil {
		return nil, err
	}
	if len(all) == len(ids) {
		return all, nil
	}
	orders, live, err := records.ReadyPlaces(x.ctx, x.tx, x.t, ids)
	if err != nil || len(live) == 0 {
		return all, err
	}
	for _, p := range x.t.Live() {
		err := lock(tokenTable{"{ready}", p}, LockDueReadySQL, orders, live, x.t.Number())
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// deleteTokens deletes locked token rows.
func (x *expiry) deleteTokens(tokens []tokenRow) error {
	rows := map[tokenTable][]pgtype.TID{}
	for _, p := range tokens {
		rows[p.table] = append(rows[p.table], p.row)
	}
	for table, some := range rows {
		sql := x.t.SQL(table.position, `DELETE FROM `+table.name+` WHERE ctid = ANY ($1)`)
		if _, err := x.tx.Exec(x.ctx, sql, some); err != nil {
			return err
		}
	}
	return nil
}

// dueTask is a task that seems to be at the end of its lifetime.
type dueTask struct {
	id           int64
	at           *time.Time // as its row in lifetimes says; nil: it has none
	start        *int16
	created      time.Time
	options      asyncflow.Options
	final        bool
	begun        bool // an attempt, since its submit or its last redrive
	begunInStage bool // in this visit of its stage
}

// dueTasksSQL reads tasks of one roll. A visit of a stage begins behind the last row that ended
// one, and behind the last row of another stage. A task with a token row of number 1 has no
// journal.
var dueTasksSQL = `
SELECT t.id, l.expires_at, l.start, t.created_at,
  coalesce(CASE WHEN u.seq = 1 THEN t.options ELSE {options} END, '{}'),
  coalesce(j.final = j.last, false), coalesce(j.begun > coalesce(j.final, -1), false),
  coalesce(j.begun > coalesce(j.entered, -1), false)
FROM unnest($1::bigint[], $3::smallint[], $4::text[]) AS u (id, seq, names), LATERAL (
  SELECT * FROM {task} WHERE type = $2 AND id = u.id LIMIT 1) t
LEFT JOIN {lifetimes} l ON l.type = t.type AND l.id = t.id, LATERAL (
  SELECT max(seq) AS last, max(seq) FILTER (WHERE final IS NOT NULL) AS final,
    max(seq) FILTER (WHERE outcome NOT IN (` + asyncflow.NotBegun + `)) AS begun,
    max(seq) FILTER (WHERE final IS NOT NULL OR outcome IN ('done', 'joined', 'signalled')
      OR stage <> ALL (string_to_array(u.names, ','))) AS entered
  FROM {journal} WHERE u.seq <> 1 AND type = t.type AND id = t.id) j
ORDER BY t.id`

func (x *expiry) read(ids []int64, tokens map[int64]tokenRow) ([]dueTask, error) {
	seqs := make([]int, len(ids)) // 0: of a task without a locked token row
	names := make([]string, len(ids))
	for i, id := range ids {
		seqs[i] = tokens[id].seq
		if seqs[i] > 1 {
			names[i] = strings.Join(x.t.NamesOf(tokens[id].stage), ",")
		}
	}
	rows, _ := x.tx.Query(x.ctx,
		x.t.SQL(asyncflow.TaskID{Number: ids[0]}.Position(), dueTasksSQL), ids, x.t.Number(), seqs,
		names)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (d dueTask, err error) {
		return d, row.Scan(&d.id, &d.at, &d.start, &d.created, &d.options, &d.final, &d.begun,
			&d.begunInStage)
	})
}
