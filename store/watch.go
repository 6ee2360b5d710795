package store

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// WatchPoll is how often those who follow a task look for what came about on
// another node; see Follow.
const WatchPoll = 500 * time.Millisecond

// Follow returns a channel that has an entry after each change that this node makes
// to a task by itself, and a function that ends it. What other nodes and governance do
// is found by looking, every WatchPoll or so.
func (s *Store) Follow(tenant string, id asyncflow.TaskID) (<-chan struct{}, func()) {
	return s.watched.follow(TypeKey{tenant, id.Type}, id.Number)
}

// watchColumns are stateColumns without the context, unless it is the result, and the seq
// of the last journal row.
var watchColumns = strings.NewReplacer(
	"t.context", "NULL::text",
	resultSQL, "coalesce("+resultSQL+", CASE WHEN j.final = 'succeeded' THEN t.context END)").
	Replace(stateColumns) + `, coalesce(j.seq, 0)`

const attemptsSQL = `
SELECT seq, at, stage, attempt, outcome, coalesce(final, ''), coalesce(endpoint, ''), coalesce(duration, 0),
  coalesce(status, 0), coalesce(error, ''), output, next_time
FROM {journal} WHERE id = $1 AND seq > $2::int ORDER BY seq`

// Watch returns a task as it stands, without its context, and the rows of its
// journal after a seq, up to where it stands; CodeNotFound when there is none. It is
// one round trip.
func (s *Store) Watch(ctx context.Context, tenant string, id asyncflow.TaskID, after int) (task Task, attempts []Attempt, err error) {
	t, err := s.TypeOf(ctx, tenant, id)
	if err != nil {
		return task, nil, err
	}
	last := 0
	err = s.following(ctx, t, func(t *Type) error {
		b := &pgx.Batch{}
		b.Queue(t.tables.at(id.Position(), watchColumns+` FROM {task} t`+stateJoins+` WHERE t.id = $1`), id.Number).Query(func(rows pgx.Rows) (err error) {
			task, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (Task, error) { return scanTask(alsoScan{row, &last}, t, s.Clock.Now()) })
			return err
		})
		b.Queue(t.tables.at(id.Position(), attemptsSQL), id.Number, after).Query(func(rows pgx.Rows) (err error) {
			attempts, err = pgx.CollectRows(rows, scanAttempt)
			return err
		})
		return s.of(t.Tenant).Send(ctx, b)
	})
	if err == pgx.ErrNoRows {
		return task, nil, unknownTask(id)
	}
	if err == nil {
		err = s.tellLimits(ctx, tenant, &task)
	}
	for len(attempts) > 0 && attempts[len(attempts)-1].Seq > last { // written between the two statements
		attempts = attempts[:len(attempts)-1]
	}
	return task, attempts, wrap(err, "Watch(%q, %s)", tenant, id)
}

// alsoScan is a row that has one more column at its end.
type alsoScan struct {
	pgx.CollectableRow
	into any
}

// Scan reads the row and its last column.
func (r alsoScan) Scan(dest ...any) error { return r.CollectableRow.Scan(append(dest, r.into)...) }
