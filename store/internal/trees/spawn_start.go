package trees

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// started are tasks that an attempt started, and that are to be made. The row of spawns is the
// cursor: it moves in the same transaction.
type started struct {
	row   records.OutboxRow
	depth int
	made  int // before this transaction
	text  string
	tasks []asyncflow.SpawnedTask // that are still to be made
	// types and ids are of the next tasks, which this transaction makes. Type 0: the type is gone.
	types []int32
	ids   []int64
	// waits are the indexes of those that it can't make, because of their keys. It has met the
	// lock of another transaction on a key, or has not looked at the key: false.
	waits map[int]bool
}

// startFollowUp is what a FollowUp does about tasks that attempts started.
type startFollowUp struct{ *followUp }

// followStarts makes tasks that attempts started. The attempts take turns: what is left of a list
// comes behind the other lists.
func (f startFollowUp) followStarts(rows []records.OutboxRow) error {
	slices.SortFunc(rows, func(a, b records.OutboxRow) int { return cmp.Compare(a.Seq, b.Seq) })
	all, err := f.readStarted(rows)
	if err != nil {
		return err
	}
	if err := f.makeStarted(all); err != nil {
		return err
	}
	for _, s := range all {
		if err := f.saveStarted(s); err != nil {
			return err
		}
	}
	return nil
}

// readStartedSQL reads lists of tasks, up to the one by which they have $4 bytes. Of later lists it
// reads only that they exist. The length of a long text is known without reading it.
const readStartedSQL = `
SELECT n, depth, made, CASE WHEN before < $4 THEN tasks END FROM (
  SELECT u.n, s.*, sum(octet_length(tasks)) OVER (ORDER BY n) - octet_length(tasks) AS before
  FROM unnest($1::int[], $2::bigint[], $3::smallint[]) WITH ORDINALITY AS u (type, id, seq, n),
    LATERAL (SELECT depth, cardinality(ids) AS made, tasks FROM {spawns}
      WHERE type = u.type AND id = u.id AND seq = u.seq AND tasks IS NOT NULL
      LIMIT 1 FOR UPDATE) s) s
ORDER BY n`

// readStarted returns the next tasks that attempts started. It leaves what exceeds a chunk to a
// later transaction.
func (f startFollowUp) readStarted(rows []records.OutboxRow) (all []*started, err error) {
	if rows, err = f.ofKnownTypes(rows); err != nil || len(rows) == 0 {
		return nil, err
	}
	read, _ := f.tx.Query(f.ctx, f.shared().SQL(0, readStartedSQL),
		records.Column(rows, func(r *records.OutboxRow) int32 { return r.Number }),
		records.Column(rows, func(r *records.OutboxRow) int64 { return r.ID }),
		records.Column(rows, func(r *records.OutboxRow) int16 { return int16(r.At) }), spawnBytes)
	var n, depth, made int
	var text *string
	_, err = pgx.ForEachRow(read, []any{&n, &depth, &made, &text}, func() error {
		r := rows[n-1]
		if text == nil || f.startLimitReached() {
			f.outbox = append(f.outbox, records.StartRow(r.Number, r.ID, r.At))
			return nil
		}
		s := &started{row: r, depth: depth, made: made}
		all = append(all, s)
		return f.takeStarted(s, *text)
	})
	return all, err
}

// ofKnownTypes returns the rows about tasks of types that exist.
func (f startFollowUp) ofKnownTypes(
	rows []records.OutboxRow,
) (known []records.OutboxRow, err error) {
	for _, r := range rows {
		if f.types[r.Number] != nil {
			known = append(known, r)
			continue
		}
		if _, err := f.typeNow(nil, r.Number); err != nil { // without one it was deleted
			return nil, err
		}
	}
	return known, nil
}

// takeStarted takes the next tasks of a list.
func (f startFollowUp) takeStarted(s *started, text string) error {
	s.text = text
	if err := json.Unmarshal([]byte(text), &s.tasks); err != nil {
		return err
	}
	s.tasks = s.tasks[s.made:]
	n := 0
	for n < len(s.tasks) && !f.startLimitReached() {
		f.spawned++
		f.spawnedBytes += len(s.tasks[n].Context)
		n++
	}
	s.types = make([]int32, n)
	s.ids = make([]int64, n)
	return nil
}

// startLimitReached is spawnLimitReached for started tasks: they leave half of what a transaction
// makes to children, if there are any.
func (f startFollowUp) startLimitReached() bool {
	if !f.makesChildren {
		return f.spawnLimitReached()
	}
	return 2*f.spawned >= f.s.chunks.spawn || 2*f.spawnedBytes >= spawnBytes
}

// startedTask is one task that an attempt started.
type startedTask struct {
	*started
	at int // its index
}

// makeStarted makes tasks, type by type in one order.
func (f startFollowUp) makeStarted(all []*started) error {
	byType := map[string][]startedTask{}
	for _, s := range all {
		for i := range s.ids {
			name := s.tasks[i].Type
			byType[name] = append(byType[name], startedTask{s, i})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byType)) {
		t, err := f.typeNamed(name)
		if err == nil && t != nil { // else it was deleted, and with it its tasks
			err = f.makeOf(t, byType[name])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// makeOf makes tasks of one type.
func (f startFollowUp) makeOf(t *config.Type, all []startedTask) error {
	first, err := f.takeNumbers(t, len(all))
	if err != nil {
		return err
	}
	items := make([]*hot.Insertion, len(all))
	for i, s := range all {
		parent := asyncflow.TaskID{Type: f.types[s.row.Number].Name, Number: s.row.ID}
		task := s.tasks[s.at].NewTask(&asyncflow.Spawned{Parent: parent.String(), Depth: s.depth})
		item := hot.NewInsertion(t, first+int64(i), &task, f.now)
		items[i] = &item
	}
	holders, locked, err := f.claimKeys(t, items)
	if err != nil {
		return err
	}
	var made []*hot.Insertion
	for i, s := range all {
		item := items[i]
		if item.Key != nil && s.waitsFor(locked, item.Key.Name) {
			continue
		}
		s.types[s.at] = t.Number()
		s.ids[s.at] = item.ID.Number
		if item.Key != nil && holders[item.Key.Name].ID != item.ID.Number {
			s.ids[s.at] = holders[item.Key.Name].ID
			continue
		}
		made = append(made, item)
		f.charge(t, item)
	}
	hot.QueueTasks(&f.last, t, made)
	changes := f.changesOf(t)
	changes.begin.New = append(changes.begin.New, made...)
	return nil
}

// charge counts a new task with its children that are known in its tenant's rate of submits.
func (f *followUp) charge(t *config.Type, item *hot.Insertion) {
	most := asyncflow.DefaultMaxChildren
	if tenant, ok := f.s.core.Catalog.Tenant(f.tenant); ok {
		most = tenant.Quotas.MostChildren()
	}
	f.charged += t.CountNew(item.Context, most)
}

// saveStarted writes which tasks were made, and leaves the rest to a later transaction.
func (f startFollowUp) saveStarted(s *started) error {
	left := s.left()
	text, err := s.reordered(left)
	if err != nil {
		return err
	}
	types, ids := s.madeNow()
	if len(ids) > 0 || text != nil {
		f.last.Queue(f.shared().SQL(0, `
			UPDATE {spawns} SET types = types || $4::int[], ids = ids || $5::bigint[],
			  tasks = CASE WHEN $6 THEN coalesce($7, tasks) END
			WHERE type = $1 AND id = $2 AND seq = $3`),
			s.row.Number, s.row.ID, s.row.At, types, ids, len(left) > 0, text)
		changes := f.changesOf(f.types[s.row.Number])
		changes.changed = append(changes.changed, s.row.ID)
	}
	if len(left) == 0 {
		return nil
	}
	next := records.StartRow(s.row.Number, s.row.ID, s.row.At)
	if s.rests(len(ids)) {
		next.Due = f.now.Add(lockedPause)
	}
	f.outbox = append(f.outbox, next)
	return nil
}

// startedBy returns the ids of the tasks of a type that a task started.
func (s *Trees) startedBy(
	ctx context.Context, t *config.Type, parent asyncflow.TaskID,
) (Family, error) {
	rows, _ := s.core.DB(t.Tenant).Query(ctx, t.SQL(0, `
		SELECT DISTINCT u.id FROM {types} y JOIN {spawns} s ON s.type = y.number,
		  unnest(s.types, s.ids) AS u (type, id)
		WHERE y.name = $1 AND s.id = $2 AND u.type = $3 ORDER BY u.id`),
		parent.Type, parent.Number, t.Number())
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	f := Family{}
	for _, id := range ids {
		if n := len(f); n > 0 && f[n-1].Last()+1 == id {
			f[n-1].N++
			continue
		}
		f = append(f, records.ChildRun{First: id, N: 1})
	}
	return f, err
}

// inherited returns what children of a fan-out inherit: how many tasks in a row have started one
// another, and who waits for them. number is the number of their type.
func inherited(parent asyncflow.Options, number int32) *asyncflow.Spawned {
	if parent.Spawned == nil {
		return nil
	}
	return &asyncflow.Spawned{Depth: parent.Spawned.Depth, Above: parent.Awaits(number),
		PriorityAt: parent.Spawned.PriorityAt}
}
