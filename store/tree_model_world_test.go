package store_test

import (
	"encoding/json"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// world is what is in the database.
type world struct {
	tasks    []taskSeen // by type and id
	edges    []edgeSeen
	families map[familyKey]*familySeen
	outbox   int    // rows that are due
	later    string // those that are not
}

type familyKey struct {
	parent asyncflow.TaskID
	seq    int
}

func (f *family) key() familyKey { return familyKey{f.parent.id, f.seq} }

// taskSeen is a task with its token rows and its journal.
type taskSeen struct {
	id      asyncflow.TaskID
	child   *asyncflow.Child
	context string
	tokens  int
	status  asyncflow.Status
	reason  asyncflow.WaitReason
	stage   string
	attempt int
	seq     int // of its token row
	rows    int // of its journal
	lastSeq int
	last    asyncflow.OutcomeKind
	final   asyncflow.Status
}

// edgeSeen is an edge from the n-th dependency of a task to another one.
type edgeSeen struct {
	of, on asyncflow.TaskID // on is zero while no task holds the key
	n      int
	status string
}

func (e edgeSeen) failed() bool { return e.status != "" && e.status != "succeeded" }

// familySeen is a row of fan_outs.
type familySeen struct {
	waits, spawned, succeeded, failed, cancelled int
	stopped, closed                              bool
	toCome                                       [3]int // ends that are still in outbox
}

// over reports whether no child may be redriven.
func (f *familySeen) over() bool { return f.stopped || f.closed }

// tasksSQL reads tasks with their token rows and their journals.
const tasksSQL = `
SELECT t.id, coalesce(t.options->'child', 'null')::text, t.context, coalesce(k.n, 0),
  coalesce(k.place, ''), coalesce(k.reason, ''), coalesce(k.stage, ''), coalesce(k.attempt, 0),
  coalesce(k.seq, 0), j.n, coalesce(l.seq, 0), coalesce(l.outcome, ''), coalesce(l.final, '')
FROM {task} t
LEFT JOIN (
  SELECT id, count(*) AS n, min(place) AS place, min(reason) AS reason, min(stage) AS stage,
    min(attempt) AS attempt, min(seq) AS seq
  FROM (
    SELECT type, id, seq, stage, attempt, 'pending' AS place, '' AS reason FROM {readies} r
    UNION ALL SELECT type, id, seq, stage, attempt, 'running', '' FROM {lease}
    UNION ALL SELECT type, id, seq, stage, attempt, 'waiting', reason FROM {wait}) k
  WHERE type = {number} GROUP BY id) k USING (id)
CROSS JOIN LATERAL (SELECT count(*) AS n FROM {journal} j WHERE j.type = t.type AND j.id = t.id) j
LEFT JOIN LATERAL (SELECT * FROM {journal} j WHERE j.type = t.type AND j.id = t.id
  ORDER BY j.seq DESC LIMIT 1) l ON true
WHERE t.type = {number} ORDER BY t.id`

// look reads the world.
func (m *treeMachine) look() (w world) {
	w.families = map[familyKey]*familySeen{}
	b, names := &pgx.Batch{}, map[int32]string{}
	for _, name := range m.types {
		kind := m.kind(name)
		for _, position := range kind.Rolls() {
			b.Queue(fill(kind, position, tasksSQL)).Query(func(rows pgx.Rows) error {
				return w.readTasks(rows, name)
			})
		}
	}
	b.Queue(`SELECT number, name FROM tenant_acme.task_types`).Query(func(rows pgx.Rows) error {
		var number int32
		var name string
		_, err := pgx.ForEachRow(rows, []any{&number, &name}, func() error {
			names[number] = name
			return nil
		})
		return err
	})
	b.Queue(`SELECT type, id, n, on_type, coalesce(on_id, 0), coalesce(status, '')
		FROM tenant_acme.edges ORDER BY type, id, n`).Query(func(rows pgx.Rows) error {
		return w.readEdges(rows, names)
	})
	b.Queue(`SELECT f.type, f.id, f.seq, waits, spawned, f.succeeded, f.failed, f.cancelled, stopped,
		  closed, coalesce(sum(o.succeeded), 0), coalesce(sum(o.failed), 0), coalesce(sum(o.cancelled), 0)
		FROM tenant_acme.fan_outs f LEFT JOIN tenant_acme.outbox o
		  ON o.type = f.type AND o.id = f.id AND o.fan_out = f.seq
		GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10`).Query(func(rows pgx.Rows) error {
		return w.readFamilies(rows, names)
	})
	// the node's clock may be a little ahead of Postgres'
	b.Queue(`SELECT count(*) FILTER (WHERE due <= soon), 
		  coalesce(string_agg(format('%s of %s.%s in %s', kind, type, id, due - now()), ', ')
		    FILTER (WHERE due > soon), '')
		FROM tenant_acme.outbox, (SELECT now() + interval '5 s' AS soon) s`).QueryRow(func(row pgx.Row) error {
		return row.Scan(&w.outbox, &w.later)
	})
	require.NoError(m.t, m.b.db.SendBatch(m.b.t.Context(), b).Close())
	return w
}

func (w *world) readTasks(rows pgx.Rows, name string) error {
	var s taskSeen
	var child string
	_, err := pgx.ForEachRow(rows, []any{&s.id.Number, &child, &s.context, &s.tokens, &s.status,
		&s.reason, &s.stage, &s.attempt, &s.seq, &s.rows, &s.lastSeq, &s.last, &s.final},
		func() error {
			s.id.Type, s.child = name, nil
			w.tasks = append(w.tasks, s)
			return json.Unmarshal([]byte(child), &w.tasks[len(w.tasks)-1].child)
		})
	return err
}

func (w *world) readEdges(rows pgx.Rows, names map[int32]string) error {
	var e edgeSeen
	var of, on int32
	_, err := pgx.ForEachRow(rows, []any{&of, &e.of.Number, &e.n, &on, &e.on.Number, &e.status},
		func() error {
			e.of.Type, e.on.Type = names[of], names[on]
			w.edges = append(w.edges, e)
			return nil
		})
	return err
}

func (w *world) readFamilies(rows pgx.Rows, names map[int32]string) error {
	var k familyKey
	var f familySeen
	var number int32
	_, err := pgx.ForEachRow(rows, []any{&number, &k.parent.Number, &k.seq, &f.waits, &f.spawned,
		&f.succeeded, &f.failed, &f.cancelled, &f.stopped, &f.closed, &f.toCome[0], &f.toCome[1],
		&f.toCome[2]}, func() error {
		k.parent.Type = names[number]
		one := f
		w.families[k] = &one
		return nil
	})
	return err
}
