package hot

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
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
	Refused   error // why InsertDependent didn't insert it
}

// NewInsertion returns a new task with its place, and a number of the open roll of its type.
func NewInsertion(
	t *config.Type, number int64, task *asyncflow.NewTask, now time.Time,
) Insertion {
	order := asyncflow.SubmitOrder(t.TaskType, *task, now)
	first := asyncflow.Verdict{Kind: asyncflow.Retry, Stage: t.Stages[0].Name, Attempt: 1,
		OrderTime: order, Reason: asyncflow.WaitDelay}
	if t.LineForClaims(first.Stage, false) && !order.After(now.Add(asyncflow.Soon)) {
		first.Reason = asyncflow.WaitClaimer
		first.Claim = task.Options.Claim
	}
	options := task.Options
	options.Lifetime = t.Lifetime(task, now)
	options.Replaceable = task.OnConflict == asyncflow.ConflictReplace
	if options.DependsOn = len(task.DependsOn); options.DependsOn > 0 {
		first.Kind = asyncflow.Park
		first.Reason = asyncflow.WaitDependencies
	}
	return Insertion{ID: asyncflow.NewTaskID(t.Name, t.End, number), Verdict: first, Created: now,
		Options: options, Context: task.Context, FlowKey: t.LineKeyOf(options),
		Key: newKey(task, now, t.Retention.Std()), DependsOn: slices.Clone(task.DependsOn)}
}

// OptionsText returns the stored form of a task's options; nil if there are none.
func OptionsText(o asyncflow.Options) *string {
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

// QueueTasks adds the rows of new tasks to a batch.
func QueueTasks(b *pgx.Batch, t *config.Type, items []*Insertion) {
	idOf := func(item *Insertion) asyncflow.TaskID { return item.ID }
	for part := range config.ByRoll(items, idOf) {
		if len(part) == 1 {
			one := part[0]
			b.Queue(t.SQL(one.ID.Position(), records.InsertOneTaskSQL), []byte(one.Context),
				one.ID.Number, one.Created, one.Verdict.OrderTime, OptionsText(one.Options),
				t.Number())
		} else {
			sql, args := taskInsert(t, records.InsertTaskSQL, part)
			b.Queue(sql, args...)
		}
		queueSearch(b, t, part)
		queueLifetimes(b, t, part)
	}
}

// taskInsert returns a statement, and its arguments, for tasks of one roll.
func taskInsert(t *config.Type, sql string, items []*Insertion) (string, []any) {
	ids := make([]int64, len(items))
	created := make(postgres.Moments, len(items))
	orders := make(postgres.Moments, len(items))
	options := make(postgres.Texts, len(items))
	contexts := make(pgtype.FlatArray[[]byte], len(items))
	for i, item := range items {
		ids[i] = item.ID.Number
		created[i] = (*postgres.Moment)(&item.Created)
		orders[i] = (*postgres.Moment)(&item.Verdict.OrderTime)
		options[i] = OptionsText(item.Options)
		contexts[i] = item.Context
	}
	return t.SQL(items[0].ID.Position(), sql),
		[]any{contexts, ids, created, orders, options, t.Number()}
}

// AddNew adds the token rows of new tasks, and returns the leases of the tasks that begin at once.
func AddNew(ts *records.Tokens, items []*Insertion, now time.Time) (leases []*asyncflow.Lease) {
	for _, item := range items {
		if item.Lease != nil {
			leases = append(leases, item.Lease)
			continue
		}
		ts.Add(item.ID.Number, 1, item.FlowKey, item.Verdict, item.Created, now)
	}
	return leases
}

// InsertAgain inserts the tasks, all of one roll, that no earlier try inserted. When it returns,
// all are as durable as if this try inserted them.
func (s *Path) InsertAgain(ctx context.Context, t *config.Type, items []*Insertion) error {
	if len(items) == 0 {
		err := s.core.ConfirmHot(ctx, t.Tenant)
		return postgres.Wrap(err, "InsertAgain(%q, %q)", t.Tenant, t.Name)
	}
	err := RunInsert(ctx, s, t, func(tx pgx.Tx, w *Writes) error {
		return s.insertFresh(ctx, tx, w, items)
	})
	return postgres.Wrap(err, "InsertAgain(%q, %q)", t.Tenant, t.Name)
}

// RunInsert runs a transaction that inserts tasks of a type, and announces what it did.
func RunInsert(ctx context.Context, s *Path, t *config.Type, do func(pgx.Tx, *Writes) error) error {
	w := &Writes{Type: t}
	err := pgx.BeginFunc(ctx, s.core.HotDB(t.Tenant), func(tx pgx.Tx) error { return do(tx, w) })
	if err != nil && len(w.Leases) > 0 {
		AnnounceEnds(s, t.Key(), w.Leases)
		return NoteFailure(s, t.Tenant, err)
	}
	if err != nil {
		return err
	}
	s.announceWrites(w, s.core.Clock.Now())
	return nil
}

// insertFresh inserts the missing tasks, in an open transaction. Tasks that an earlier try inserted
// with a lease keep it.
func (s *Path) insertFresh(ctx context.Context, tx pgx.Tx, w *Writes, items []*Insertion) error {
	inserted, err := InsertMissing(ctx, tx, w.Type, items)
	if err != nil {
		return err
	}
	// A commit of an earlier try may lack its announcement.
	now := s.core.Clock.Now()
	all := records.Tokens{}
	AddNew(&all, items, now)
	if len(inserted) == 0 {
		w.Tokens.Earliest = all.Earliest
		return s.core.Confirm(ctx, tx, w.Type.Tenant)
	}
	fresh := slices.DeleteFunc(slices.Clone(items), func(item *Insertion) bool {
		return !inserted[item.ID.Number]
	})
	w.Leases = AddNew(&w.Tokens, fresh, now)
	w.Counts = records.Tally{Submitted: len(fresh)}
	b := &pgx.Batch{}
	rows := records.Inserts{Node: s.core.Config.Node}
	w.AddFollowing(&rows, now)
	rows.Queue(b, now)
	w.Tokens.Earliest = all.Earliest
	return tx.SendBatch(ctx, b).Close()
}

// InsertMissing inserts the rows of the tasks, all of one roll, that no earlier try inserted, and
// returns their ids. It also inserts what they are found by.
func InsertMissing(
	ctx context.Context, tx pgx.Tx, t *config.Type, items []*Insertion,
) (inserted map[int64]bool, err error) {
	sql, args := taskInsert(t, records.InsertTaskAgainSQL, items)
	found, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	inserted = map[int64]bool{}
	if err := CollectIDs(found, inserted); err != nil {
		if postgres.State(err) == pgerrcode.DivisionByZero {
			return nil, config.UnknownType(t.Name)
		}
		return nil, err
	}
	if err := checkOwn(ctx, tx, t, items, inserted); err != nil {
		return inserted, err
	}
	return inserted, insertBeside(ctx, tx, t, items, inserted)
}

// insertBeside inserts the rows in other tables of the tasks that were just inserted.
func insertBeside(
	ctx context.Context, tx pgx.Tx, t *config.Type, items []*Insertion, inserted map[int64]bool,
) error {
	var fresh []*Insertion
	for _, item := range items {
		if inserted[item.ID.Number] {
			fresh = append(fresh, item)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	b := &pgx.Batch{}
	queueSearch(b, t, fresh)
	queueLifetimes(b, t, fresh)
	if b.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, b).Close()
}

// checkOwn checks that rows that existed already belong to these very tasks. If an id named another
// task, this one would be lost.
func checkOwn(
	ctx context.Context, tx pgx.Tx, t *config.Type, items []*Insertion, inserted map[int64]bool,
) error {
	var ids []int64
	var created []time.Time
	for _, item := range items {
		if !inserted[item.ID.Number] {
			ids = append(ids, item.ID.Number)
			created = append(created, item.Created)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	var own int
	position := asyncflow.TaskID{Number: ids[0]}.Position()
	err := tx.QueryRow(ctx, t.SQL(position, `
		SELECT count(*) FROM {task} t JOIN unnest($1::bigint[], $2::timestamptz[]) AS u (id,
		  created_at)
		ON t.type = $3 AND t.id = u.id AND t.created_at = u.created_at`), ids, created, t.Number()).
		Scan(&own)
	if err == nil && own < len(ids) {
		err = asyncflow.Errorf(asyncflow.CodeInternal, "%d ids of %s are those of other tasks",
			len(ids)-own, t.Name)
	}
	return err
}

// insertedOf returns the ids of a roll for which there are tasks.
func (s *Path) insertedOf(
	ctx context.Context, t *config.Type, position int, ids []int64,
) (map[int64]bool, error) {
	rows, err := s.core.DB(t.Tenant).Query(ctx,
		t.SQL(position, `SELECT id FROM {task} WHERE type = $2 AND id = ANY ($1)`), ids, t.Number())
	if err != nil {
		return nil, err
	}
	inserted := map[int64]bool{}
	return inserted, CollectIDs(rows, inserted)
}

// Renumber gives tasks of one roll ids of the roll that is open now, except tasks that an earlier
// try inserted. Their roll is sealed, so this is certain; or the roll doesn't exist, in a database
// that lost its latest transactions. Renumber returns the type's current definition, and the tasks
// still to insert.
func (s *Path) Renumber(
	ctx context.Context, t *config.Type, items []*Insertion,
) (*config.Type, []*Insertion, error) {
	fresh, err := s.core.Refreshed(ctx, t)
	if err != nil {
		return t, items, postgres.Wrap(err, "Renumber(%q, %q)", t.Tenant, t.Name)
	}
	ids := make([]int64, len(items))
	for i, item := range items {
		ids[i] = item.ID.Number
	}
	position := items[0].ID.Position()
	inserted, err := s.insertedOf(ctx, fresh, position, ids)
	switch gone := IsUndefinedTable(err); {
	case gone && position == fresh.End: // and so is the type
		return t, items, config.UnknownType(t.Name)
	case err != nil && !gone:
		return t, items, postgres.Wrap(err, "Renumber(%q, %q)", t.Tenant, t.Name)
	}
	again := slices.DeleteFunc(slices.Clone(items), func(item *Insertion) bool {
		return inserted[item.ID.Number]
	})
	if position == fresh.End || len(again) == 0 { // the roll was just made
		return fresh, again, nil
	}
	fresh, numbers, err := s.AllotNumbers(ctx, fresh, len(again))
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

// IsUndefinedTable reports whether a table doesn't exist: its roll, or its type, was dropped.
func IsUndefinedTable(err error) bool { return postgres.State(err) == pgerrcode.UndefinedTable }

// Refuse refuses the task because of its i-th dependency, unless it is refused already.
func (item *Insertion) Refuse(i int, format string, args ...any) {
	if item.Refused == nil {
		item.Refused = asyncflow.BadDependency(i, format, args...)
	}
}
