package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

const (
	submitBatch  = 500
	submitLinger = 2 * time.Millisecond
	// submitPatience bounds the tries to find out whether a commit happened.
	submitPatience = 10 * time.Second
)

// Submitted is the result of one submitted task: Err, or what it became.
type Submitted struct {
	ID        asyncflow.TaskID
	Stage     string
	Status    asyncflow.Status
	OrderTime time.Time
	Existing  bool // the key stood for this task already
	Err       error
}

// submitItem is a task on its way into a batch. The bytes in it are its own.
type submitItem struct {
	id      int64
	verdict asyncflow.Verdict // where its first token row goes
	created time.Time
	options *string
	context string
	flowKey string
	key     *submitKey // nil without a key
	result  *Submitted
	done    *sync.WaitGroup
}

// Submit accepts tasks of a tenant, which must be valid. It returns when all of
// them are durable or refused, with a result for each in the same order; one
// task's fault is no fault of the others. Those that the tenant's quota of pending tasks
// leaves no room for are CodeQuota. It keeps no reference to the tasks.
func (s *Store) Submit(ctx context.Context, tenant string, tasks []asyncflow.NewTask) []Submitted {
	results := make([]Submitted, len(tasks))
	defer s.letIn(ctx, tenant, tasks, results)()
	s.submit(ctx, tenant, tasks, results)
	return results
}

// SubmitNotice submits a task of asyncflow's own, whatever the tenant's quotas.
func (s *Store) SubmitNotice(ctx context.Context, tenant string, task asyncflow.NewTask) Submitted {
	results := make([]Submitted, 1)
	s.submit(ctx, tenant, []asyncflow.NewTask{task}, results)
	return results[0]
}

// submit submits those tasks that have no error in results.
func (s *Store) submit(ctx context.Context, tenant string, tasks []asyncflow.NewTask, results []Submitted) {
	byType := map[string][]int{}
	for i, task := range tasks {
		if results[i].Err == nil {
			byType[task.Type] = append(byType[task.Type], i)
		}
	}
	var done sync.WaitGroup
	for name, indexes := range byType {
		items, err := s.newItems(ctx, tenant, name, tasks, indexes, results)
		if err != nil {
			for _, i := range indexes {
				results[i].Err = err
			}
			continue
		}
		done.Add(len(items))
		for i := range items {
			items[i].done = &done
		}
		plain, keyed := splitKeyed(items)
		s.submits.add(TypeKey{tenant, name}, plain...)
		s.keyed.add(TypeKey{tenant, name}, keyed...)
	}
	done.Wait()
	s.countSubmitted(tenant, byType, results)
	s.readExisting(ctx, tenant, results)
}

// newItems gives the tasks of one type their ids and places.
func (s *Store) newItems(ctx context.Context, tenant, name string, tasks []asyncflow.NewTask, indexes []int, results []Submitted) ([]submitItem, error) {
	t, err := s.Catalog.Fresh(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	ids, err := s.takeNumbers(ctx, t, len(indexes))
	if err != nil {
		return nil, err
	}
	now := s.Clock.Now()
	items := make([]submitItem, 0, len(indexes))
	for n, i := range indexes {
		if window := tasks[i].KeyWindow; window > t.Retention {
			results[i].Err = asyncflow.InvalidField("key_window", "is %s; tasks of %s are kept for %s", window, name, t.Retention)
			continue
		}
		id := asyncflow.NewTaskID(name, t.End, ids[n])
		order := asyncflow.SubmitOrder(t.TaskType, tasks[i], now)
		first := asyncflow.Verdict{Kind: asyncflow.Retry, Stage: t.Stages[0].Name, Attempt: 1, OrderTime: order, Reason: asyncflow.WaitDelay}
		results[i] = Submitted{ID: id, Stage: first.Stage, Status: first.Status(now), OrderTime: order}
		items = append(items, submitItem{id: id.Number, verdict: first, created: now, options: optionsText(tasks[i].Options),
			context: string(tasks[i].Context), flowKey: t.FlowKeyOf(tasks[i].Options), key: keyOf(tasks[i], now, t.Retention.Std()), result: &results[i]})
	}
	return items, nil
}

// takeNumbers takes ids, trying again for a while when the database is away.
func (s *Store) takeNumbers(ctx context.Context, t *Type, n int) (ids []int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, submitPatience)
	defer cancel()
	final := func(err error) bool { return asyncflow.CodeOf(err) != asyncflow.CodeUnavailable }
	err = s.persistUntil(ctx, "take numbers", t.Key(), final, func() (err error) {
		ids, err = s.numbers.take(ctx, t, n)
		return err
	})
	return ids, err
}

// optionsText returns the options as they are stored; nil when there are none.
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

// writeSubmits writes one batch and tells each item its result.
func (s *Store) writeSubmits(ctx context.Context, key TypeKey, items []submitItem) {
	ctx, cancel := context.WithTimeout(ctx, submitPatience)
	defer cancel()
	slices.SortFunc(items, func(a, b submitItem) int { return cmp.Compare(a.id, b.id) })
	for _, part := range byRoll(items) {
		s.insertTasks(ctx, key, part)
	}
	for _, item := range items {
		item.done.Done()
	}
}

// byRoll divides items by the roll that their ids name. All are of the same one, but
// for a moment after it has opened.
func byRoll(items []submitItem) map[int][]submitItem {
	parts := map[int][]submitItem{}
	for _, item := range items {
		position := asyncflow.TaskID{Number: item.id}.Position()
		parts[position] = append(parts[position], item)
	}
	return parts
}

// insertTasks inserts a batch of one roll. When Postgres refuses its data, the batch is split
// until only the offender fails.
func (s *Store) insertTasks(ctx context.Context, key TypeKey, items []submitItem) {
	earliest, err := s.insertBatch(ctx, key, items)
	switch {
	case err == nil:
		s.Wakeups.Announce(key, earliest)
	case isDataError(err) && len(items) > 1:
		half := len(items) / 2
		s.insertTasks(ctx, key, items[:half])
		s.insertTasks(ctx, key, items[half:])
	case isDataError(err):
		items[0].result.Err = asyncflow.InvalidField("context", "was refused by Postgres: %v", err)
	default:
		for _, item := range items {
			item.result.Err = uncertain(err, key)
		}
	}
}

// uncertain says that it is not known whether a task was accepted, where that is so.
func uncertain(err error, key TypeKey) error {
	err = wrap(err, "Submit(%q, %q)", key.Tenant, key.Type)
	if asyncflow.CodeOf(err) == asyncflow.CodeUnavailable {
		return &asyncflow.Error{Code: asyncflow.CodeUncertain, RetryAfter: time.Second, Err: err,
			Message: "the database went away: it is not known whether the task was accepted"}
	}
	return err
}

// insertBatch inserts a batch, trying again when the database failed: the ids
// were allotted before, so a commit whose answer was lost is found, not repeated.
// When the roll was sealed meanwhile, the tasks go to the next one.
// It returns the least order_time among the ready rows.
func (s *Store) insertBatch(ctx context.Context, key TypeKey, items []submitItem) (time.Time, error) {
	t, err := s.Catalog.Type(key.Tenant, key.Type)
	if err != nil {
		return time.Time{}, err
	}
	now := s.Clock.Now()
	ts := tokensOf(items, now)
	err = s.insertNew(ctx, t, items, ts, now)
	for pause := 20 * time.Millisecond; err != nil && !isDataError(err) && !isRefused(err) && !isOurs(err) && ctx.Err() == nil; {
		if rolledOn(err) {
			if t, items, err = s.rollOn(ctx, t, items); err != nil {
				continue
			}
		} else {
			s.log.Warn("submit failed, trying again", "tenant", key.Tenant, "type", key.Type, "tasks", len(items), "error", err)
			sleep(ctx, min(pause, time.Second))
			pause *= 2
		}
		err = s.insertAgain(ctx, t, items, now)
	}
	return ts.earliest, err
}

// insertNew inserts a batch that nobody has tried to insert before: without BEGIN it
// is one transaction and one round trip.
func (s *Store) insertNew(ctx context.Context, t *Type, items []submitItem, ts *tokens, now time.Time) error {
	b := &pgx.Batch{}
	queueTasks(b, t, items)
	ts.queue(b, t)
	tally{submitted: len(items)}.queue(b, t, now)
	return s.hot(t.Tenant).Send(ctx, b)
}

// rollOn gives the items of a batch new ids, those of the roll that is open by now, but
// for those that an earlier try has inserted: their roll is sealed, so that it is known.
// It returns the type as it is now, and the items that are still to be inserted.
func (s *Store) rollOn(ctx context.Context, t *Type, items []submitItem) (*Type, []submitItem, error) {
	fresh, err := s.refreshed(ctx, t)
	if err != nil {
		return t, items, err
	}
	ids := make([]int64, len(items))
	for i, item := range items {
		ids[i] = item.id
	}
	position := asyncflow.TaskID{Number: ids[0]}.Position()
	if position == fresh.End { // it was not the roll that is gone, but the type
		return t, items, unknownType(t.Name)
	}
	rows, err := s.of(t.Tenant).Query(ctx, fresh.tables.at(position, `SELECT id FROM {task} WHERE id = ANY ($1)`), ids)
	inserted := map[int64]bool{}
	if err == nil {
		err = collectIDs(rows, inserted)
	}
	if err != nil {
		return t, items, err
	}
	items = slices.DeleteFunc(slices.Clone(items), func(item submitItem) bool { return inserted[item.id] })
	return fresh, items, s.renumber(ctx, fresh, items)
}

// renumber gives items ids of the open roll.
func (s *Store) renumber(ctx context.Context, t *Type, items []submitItem) error {
	ids, err := s.numbers.take(ctx, t, len(items))
	if err != nil {
		return err
	}
	for i := range items {
		id := asyncflow.NewTaskID(t.Name, t.End, ids[i])
		items[i].id, items[i].result.ID = id.Number, id
	}
	return nil
}

// isOurs tells an error that is no database's.
func isOurs(err error) bool {
	var known *asyncflow.Error
	return errors.As(err, &known)
}

func tokensOf(items []submitItem, now time.Time) *tokens {
	ts := &tokens{}
	for _, item := range items {
		ts.add(item.id, 1, item.flowKey, item.verdict, now)
	}
	return ts
}

func queueTasks(b *pgx.Batch, t *Type, items []submitItem) {
	sql, args := taskInsert(t, insertTaskSQL, items)
	b.Queue(sql, args...)
}

func taskInsert(t *Type, sql string, items []submitItem) (string, []any) {
	ids := make([]int64, len(items))
	created := make([]time.Time, len(items))
	orders := make([]time.Time, len(items))
	options := make([]*string, len(items))
	contexts := make([]string, len(items))
	for i, item := range items {
		ids[i], created[i], orders[i], options[i], contexts[i] = item.id, item.created, item.verdict.OrderTime, item.options, item.context
	}
	position := asyncflow.TaskID{Number: items[0].id}.Position()
	return t.tables.at(position, sql), []any{ids, created, orders, options, contexts}
}

// insertAgain inserts those items of a batch that an earlier try has not.
func (s *Store) insertAgain(ctx context.Context, t *Type, items []submitItem, now time.Time) error {
	if len(items) == 0 {
		return nil
	}
	return pgx.BeginFunc(ctx, s.hot(t.Tenant), func(tx pgx.Tx) error {
		_, err := insertFresh(ctx, tx, t, items, now)
		return err
	})
}

// insertFresh inserts those items that are not there yet, and returns the least
// order_time among their ready rows.
func insertFresh(ctx context.Context, tx pgx.Tx, t *Type, items []submitItem, now time.Time) (time.Time, error) {
	sql, args := taskInsert(t, insertTaskAgainSQL, items)
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return time.Time{}, err
	}
	inserted := map[int64]bool{}
	if err := collectIDs(rows, inserted); err != nil {
		return time.Time{}, err
	}
	if err := checkOwn(ctx, tx, t, items, inserted); err != nil || len(inserted) == 0 {
		return time.Time{}, err
	}
	ts := tokensOf(slices.DeleteFunc(slices.Clone(items), func(item submitItem) bool { return !inserted[item.id] }), now)
	b := &pgx.Batch{}
	ts.queue(b, t)
	tally{submitted: len(inserted)}.queue(b, t, now)
	return ts.earliest, tx.SendBatch(ctx, b).Close()
}

// checkOwn makes sure that the rows which were there already are those of these very
// items: an id that named another task would lose this one.
func checkOwn(ctx context.Context, tx pgx.Tx, t *Type, items []submitItem, inserted map[int64]bool) error {
	var ids []int64
	var created []time.Time
	for _, item := range items {
		if !inserted[item.id] {
			ids, created = append(ids, item.id), append(created, item.created)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	var own int
	position := asyncflow.TaskID{Number: ids[0]}.Position()
	err := tx.QueryRow(ctx, t.tables.at(position, `
		SELECT count(*) FROM {task} t JOIN unnest($1::bigint[], $2::timestamptz[]) AS u (id, created_at)
		ON t.id = u.id AND t.created_at = u.created_at`), ids, created).Scan(&own)
	if err == nil && own < len(ids) {
		err = asyncflow.Errorf(asyncflow.CodeInternal, "%d ids of %s are those of other tasks", len(ids)-own, t.Name)
	}
	return err
}
