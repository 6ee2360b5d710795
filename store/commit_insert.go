package store

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/asyncflow/asyncflow"
)

// Insertion is a new task on its way into the tables.
type Insertion struct {
	ID      asyncflow.TaskID
	Verdict asyncflow.Verdict // where its first token row goes
	Created time.Time
	Options asyncflow.Options
	Context json.RawMessage
	FlowKey string
	Key     *Key             // its idempotency key; nil: none
	Lease   *asyncflow.Lease // the task begins with it; nil: it goes in line

	DependsOn []asyncflow.Dependency
	Refused   error // why InsertDependent has not inserted it
}

// optionsText returns the stored form of a task's options; nil if there are none.
func optionsText(o asyncflow.Options) *string {
	if o.IsZero() {
		return nil
	}
	doc, err := json.Marshal(o)
	if err != nil {
		panic(err) // numbers and a string
	}
	text := string(doc)
	return &text
}

// queueTasks adds the rows of new tasks to a batch.
func queueTasks(b *pgx.Batch, t *Type, items []*Insertion) {
	idOf := func(item *Insertion) asyncflow.TaskID { return item.ID }
	for part := range ByRoll(items, idOf) {
		if len(part) == 1 {
			one := part[0]
			b.Queue(t.at(one.ID.Position(), insertOneTaskSQL), []byte(one.Context), one.ID.Number,
				one.Created, one.Verdict.OrderTime, optionsText(one.Options), t.number)
			continue
		}
		sql, args := taskInsert(t, insertTaskSQL, part)
		b.Queue(sql, args...)
	}
}

// taskInsert returns a statement, and its arguments, for tasks of one roll.
func taskInsert(t *Type, sql string, items []*Insertion) (string, []any) {
	ids := make([]int64, len(items))
	created := make(moments, len(items))
	orders := make(moments, len(items))
	options := make(texts, len(items))
	contexts := make(pgtype.FlatArray[[]byte], len(items))
	for i, item := range items {
		ids[i], created[i] = item.ID.Number, (*moment)(&item.Created)
		orders[i] = (*moment)(&item.Verdict.OrderTime)
		options[i], contexts[i] = optionsText(item.Options), item.Context
	}
	return t.at(items[0].ID.Position(), sql),
		[]any{contexts, ids, created, orders, options, t.number}
}

// addNew adds the token rows of new tasks, and returns the leases of those that begin at once.
func addNew(ts *tokens, items []*Insertion, now time.Time) (leases []*asyncflow.Lease) {
	for _, item := range items {
		if item.Lease != nil {
			leases = append(leases, item.Lease)
			continue
		}
		ts.add(item.ID.Number, 1, item.FlowKey, item.Verdict, item.Created, now)
	}
	return leases
}

// InsertAgain inserts the tasks, all of one roll, that an earlier try has not inserted. When it
// returns, all are as durable as if it had inserted them.
func (s *hotPath) InsertAgain(ctx context.Context, t *Type, items []*Insertion) error {
	if len(items) == 0 {
		return wrap(confirm(ctx, s.of(t.Tenant)), "InsertAgain(%q, %q)", t.Tenant, t.Name)
	}
	err := s.inserting(ctx, t, func(tx pgx.Tx, w *Writes) error {
		return s.insertFresh(ctx, tx, w, items)
	})
	return wrap(err, "InsertAgain(%q, %q)", t.Tenant, t.Name)
}

// inserting runs a transaction that inserts tasks of a type, and announces what it did.
func (s *hotPath) inserting(ctx context.Context, t *Type, do func(pgx.Tx, *Writes) error) error {
	w := &Writes{Type: t}
	err := pgx.BeginFunc(ctx, s.hot(t.Tenant), func(tx pgx.Tx) error { return do(tx, w) })
	if err != nil && len(w.leases) > 0 {
		s.announceEnds(t.Key(), w.leases)
		return s.doubt(err)
	}
	if err == nil {
		s.announceWrites(w, s.Clock.Now())
	}
	return err
}

// insertFresh inserts the missing tasks, in an open transaction. Tasks that an earlier try has
// inserted with a lease keep it.
func (s *hotPath) insertFresh(ctx context.Context, tx pgx.Tx, w *Writes, items []*Insertion) error {
	inserted, err := insertMissing(ctx, tx, w.Type, items)
	if err != nil {
		return err
	}
	// An earlier try may have been committed without its announcement.
	now := s.Clock.Now()
	all := tokens{}
	addNew(&all, items, now)
	if len(inserted) == 0 {
		w.tokens.earliest = all.earliest
		return confirm(ctx, tx)
	}
	fresh := slices.DeleteFunc(slices.Clone(items), func(item *Insertion) bool {
		return !inserted[item.ID.Number]
	})
	w.leases = addNew(&w.tokens, fresh, now)
	w.counts = tally{submitted: len(fresh)}
	b := &pgx.Batch{}
	rows := rows{node: s.cfg.Node}
	w.addFollowing(&rows, now)
	rows.queue(b, now)
	w.tokens.earliest = all.earliest
	return tx.SendBatch(ctx, b).Close()
}

// insertMissing inserts the rows of the tasks, all of one roll, that an earlier try has not
// inserted, and returns their ids.
func insertMissing(
	ctx context.Context, tx pgx.Tx, t *Type, items []*Insertion,
) (inserted map[int64]bool, err error) {
	sql, args := taskInsert(t, insertTaskAgainSQL, items)
	found, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	inserted = map[int64]bool{}
	if err := collectIDs(found, inserted); err != nil {
		if sqlState(err) == pgerrcode.DivisionByZero {
			return nil, unknownType(t.Name)
		}
		return nil, err
	}
	return inserted, checkOwn(ctx, tx, t, items, inserted)
}

// checkOwn checks that rows that existed already are those of these very tasks. If an id named
// another task, this one would be lost.
func checkOwn(
	ctx context.Context, tx pgx.Tx, t *Type, items []*Insertion, inserted map[int64]bool,
) error {
	var ids []int64
	var created []time.Time
	for _, item := range items {
		if !inserted[item.ID.Number] {
			ids, created = append(ids, item.ID.Number), append(created, item.Created)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	var own int
	position := asyncflow.TaskID{Number: ids[0]}.Position()
	err := tx.QueryRow(ctx, t.at(position, `
		SELECT count(*) FROM {task} t JOIN unnest($1::bigint[], $2::timestamptz[]) AS u (id, created_at)
		ON t.type = $3 AND t.id = u.id AND t.created_at = u.created_at`), ids, created, t.number).
		Scan(&own)
	if err == nil && own < len(ids) {
		err = asyncflow.Errorf(asyncflow.CodeInternal, "%d ids of %s are those of other tasks",
			len(ids)-own, t.Name)
	}
	return err
}

// Renumber gives tasks of one roll ids of the roll that is open now, except tasks that an earlier
// try has inserted. Their roll is sealed, so this is certain; or the roll doesn't exist, in a
// database that has lost its latest history. Renumber returns the type's current definition, and
// the tasks still to insert.
func (s *hotPath) Renumber(
	ctx context.Context, t *Type, items []*Insertion,
) (*Type, []*Insertion, error) {
	fresh, err := s.refreshed(ctx, t)
	if err != nil {
		return t, items, wrap(err, "Renumber(%q, %q)", t.Tenant, t.Name)
	}
	ids := make([]int64, len(items))
	for i, item := range items {
		ids[i] = item.ID.Number
	}
	position := items[0].ID.Position()
	rows, err := s.of(t.Tenant).Query(ctx,
		fresh.at(position, `SELECT id FROM {task} WHERE type = $2 AND id = ANY ($1)`), ids, fresh.number)
	inserted := map[int64]bool{}
	if err == nil {
		err = collectIDs(rows, inserted)
	}
	switch gone := isUndefinedTable(err); {
	case gone && position == fresh.End: // and so is the type
		return t, items, unknownType(t.Name)
	case err != nil && !gone:
		return t, items, wrap(err, "Renumber(%q, %q)", t.Tenant, t.Name)
	}
	again := slices.DeleteFunc(slices.Clone(items), func(item *Insertion) bool {
		return inserted[item.ID.Number]
	})
	if position == fresh.End || len(again) == 0 { // the roll was just made
		return fresh, again, nil
	}
	fresh, numbers, err := s.numbers.take(ctx, fresh, len(again))
	if err != nil {
		return t, items, err
	}
	for i, item := range again {
		item.ID = asyncflow.NewTaskID(t.Name, fresh.End, numbers[i])
		if item.Lease != nil {
			item.Lease.ID = item.ID
		}
	}
	return fresh, again, nil
}

// isUndefinedTable reports whether a table doesn't exist: its roll, or its type, was dropped.
func isUndefinedTable(err error) bool { return sqlState(err) == pgerrcode.UndefinedTable }

// refuse refuses the task because of its i-th dependency, unless it is refused already.
func (item *Insertion) refuse(i int, format string, args ...any) {
	if item.Refused == nil {
		item.Refused = asyncflow.BadDependency(i, format, args...)
	}
}
