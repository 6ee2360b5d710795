package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/asyncflow/asyncflow"
)

// insertTasks inserts a batch of one roll. When Postgres refuses its data, the batch is split
// until only the offender fails.
func (s *Store) insertTasks(ctx context.Context, key TypeKey, items []*submitItem) {
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
		return notKnown(err)
	}
	return err
}

func notKnown(err error) error {
	return &asyncflow.Error{Code: asyncflow.CodeUncertain, RetryAfter: time.Second, Err: err,
		Message: "the database went away: it is not known whether the task was accepted"}
}

// insertBatch inserts a batch, trying again when the database failed: the ids
// were allotted before, so a commit whose answer was lost is found, not repeated.
// When the roll was sealed meanwhile, the tasks go to the next one.
// It returns the least order_time among the ready rows.
func (s *Store) insertBatch(ctx context.Context, key TypeKey, items []*submitItem) (time.Time, error) {
	t, err := s.Catalog.Type(key.Tenant, key.Type)
	if err != nil {
		return time.Time{}, err
	}
	now := s.Clock.Now()
	earliest, err := s.insertNew(ctx, t, items, now)
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
		earliest = tokensOf(items, nil, now).earliest // an earlier try may have got through
		err = s.insertAgain(ctx, t, items, now)
	}
	return earliest, err
}

// insertNew inserts a batch that nobody has tried to insert before: without BEGIN it
// is one transaction and one round trip. It returns the least order_time among the ready
// rows.
func (s *Store) insertNew(ctx context.Context, t *Type, items []*submitItem, now time.Time) (time.Time, error) {
	h := s.handOff(t, items, true)
	b := &pgx.Batch{}
	queueTasks(b, t, items)
	earliest := s.queueTokens(b, t, items, h, now)
	err := s.hot(t.Key()).Send(ctx, b)
	h.end(err)
	return earliest, err
}

// queueTokens adds to a batch what new tasks need beside their rows: leases for those that
// are handed off, token rows for the others, and the count. It returns the least
// order_time among the ready rows.
func (s *Store) queueTokens(b *pgx.Batch, t *Type, items []*submitItem, h *handoff, now time.Time) time.Time {
	ts := tokensOf(items, h, now)
	ts.queue(b, t)
	if h != nil {
		s.queueLeases(b, t, h.leases, nil, h.now)
	}
	tally{submitted: len(items)}.queue(b, t, now)
	return ts.earliest
}

// rollOn gives the items of a batch new ids, those of the roll that is open by now, but
// for those that an earlier try has inserted: their roll is sealed, so that it is known; or it
// isn't there, in a database that has gone back. It returns the type as it is now, and the items
// that are still to be inserted.
func (s *Store) rollOn(ctx context.Context, t *Type, items []*submitItem) (*Type, []*submitItem, error) {
	fresh, err := s.refreshed(ctx, t)
	if err != nil {
		return t, items, err
	}
	ids := make([]int64, len(items))
	for i, item := range items {
		ids[i] = item.id
	}
	position := asyncflow.TaskID{Number: ids[0]}.Position()
	rows, err := s.of(t.Tenant).Query(ctx, fresh.tables.at(position, `SELECT id FROM {task} WHERE id = ANY ($1)`), ids)
	inserted := map[int64]bool{}
	if err == nil {
		err = collectIDs(rows, inserted)
	}
	switch gone := sqlState(err) == "42P01"; {
	case gone && position == fresh.End: // and so is the type
		return t, items, unknownType(t.Name)
	case err != nil && !gone:
		return t, items, err
	}
	var again []*submitItem
	for _, item := range items {
		if !inserted[item.id] {
			moved := *item // the batch stays of one roll: it may still have to be split
			again = append(again, &moved)
		}
	}
	if position == fresh.End { // it was made this moment
		return fresh, again, nil
	}
	fresh, err = s.renumber(ctx, fresh, again)
	return fresh, again, err
}

// renumber gives items ids of the open roll, and returns the type with that open.
func (s *Store) renumber(ctx context.Context, t *Type, items []*submitItem) (*Type, error) {
	t, ids, err := s.numbers.take(ctx, t, len(items))
	if err != nil {
		return t, err
	}
	for i := range items {
		id := asyncflow.NewTaskID(t.Name, t.End, ids[i])
		items[i].id, items[i].result.ID = id.Number, id
	}
	return t, nil
}

// isOurs tells an error that is no database's.
func isOurs(err error) bool {
	var known *asyncflow.Error
	return errors.As(err, &known)
}

// tokensOf places those items that are not handed off.
func tokensOf(items []*submitItem, h *handoff, now time.Time) *tokens {
	ts := &tokens{most: len(items)}
	if h != nil {
		ts.most -= len(h.leases)
	}
	for _, item := range items {
		if !h.has(item) {
			ts.add(item.id, 1, item.flowKey, item.verdict, item.created, now)
		}
	}
	return ts
}

func queueTasks(b *pgx.Batch, t *Type, items []*submitItem) {
	sql, args := taskInsert(t, insertTaskSQL, items)
	b.Queue(sql, args...)
}

func taskInsert(t *Type, sql string, items []*submitItem) (string, []any) {
	ids := make([]int64, len(items))
	created := make(moments, len(items))
	orders := make(moments, len(items))
	options := make(texts, len(items))
	contexts := make(pgtype.FlatArray[[]byte], len(items))
	for i, item := range items {
		ids[i], created[i], orders[i] = item.id, (*moment)(&item.created), (*moment)(&item.verdict.OrderTime)
		options[i], contexts[i] = item.options, item.context
	}
	return t.tables.at(items[0].position(), sql), []any{contexts, ids, created, orders, options}
}

// insertAgain inserts those items of a batch that an earlier try has not. It returns when all
// are as durable as if it had inserted them.
func (s *Store) insertAgain(ctx context.Context, t *Type, items []*submitItem, now time.Time) error {
	if len(items) == 0 {
		return confirm(ctx, s.of(t.Tenant))
	}
	var h *handoff
	err := pgx.BeginFunc(ctx, s.hot(t.Key()), func(tx pgx.Tx) (err error) {
		_, h, err = s.insertFresh(ctx, tx, t, items, now)
		return err
	})
	h.end(err)
	return err
}

// insertFresh inserts those items that are not there yet, and returns the least
// order_time among their ready rows, and what is to be handed off once the transaction
// has ended: also with an error.
func (s *Store) insertFresh(ctx context.Context, tx pgx.Tx, t *Type, items []*submitItem, now time.Time) (time.Time, *handoff, error) {
	sql, args := taskInsert(t, insertTaskAgainSQL, items)
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return time.Time{}, nil, err
	}
	inserted := map[int64]bool{}
	if err := collectIDs(rows, inserted); err != nil {
		return time.Time{}, nil, err
	}
	if err := checkOwn(ctx, tx, t, items, inserted); err != nil {
		return time.Time{}, nil, err
	}
	if len(inserted) == 0 {
		return time.Time{}, nil, confirm(ctx, tx)
	}
	items = slices.DeleteFunc(slices.Clone(items), func(item *submitItem) bool { return !inserted[item.id] })
	h := s.handOff(t, items, false)
	b := &pgx.Batch{}
	earliest := s.queueTokens(b, t, items, h, now)
	return earliest, h, tx.SendBatch(ctx, b).Close()
}

// checkOwn makes sure that the rows which were there already are those of these very
// items: an id that named another task would lose this one.
func checkOwn(ctx context.Context, tx pgx.Tx, t *Type, items []*submitItem, inserted map[int64]bool) error {
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
