package trees

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// InsertDependent inserts tasks of one roll that depend on other tasks. It is one transaction,
// which may be repeated. It sets Insertion.Refused of tasks with impossible dependencies, and
// Key.Holder of tasks with a key that is not free.
func (s *Trees) InsertDependent(ctx context.Context, t *config.Type, items []*hot.Insertion) error {
	if len(items) == 0 { // an earlier try inserted all of them
		err := s.core.ConfirmHot(ctx, t.Tenant)
		return postgres.Wrap(err, "InsertDependent(%q, %q)", t.Tenant, t.Name)
	}
	d := &dependents{core: s.core, t: t, node: s.core.Config.Node, now: s.core.Clock.Now()}
	if err := d.findTypes(ctx, s, items); err != nil {
		return postgres.Wrap(err, "InsertDependent(%q, %q)", t.Tenant, t.Name)
	}
	err := hot.RunInsert(ctx, s.hot, t, func(tx pgx.Tx, w *hot.Writes) error {
		d.tx = tx
		d.w = w
		return d.insert(ctx, items)
	})
	if err != nil {
		return postgres.Wrap(err, "InsertDependent(%q, %q)", t.Tenant, t.Name)
	}
	s.core.TellFollowUp(t.Tenant)
	return nil
}

// dependents is one transaction of InsertDependent.
type dependents struct {
	core  *catalog.Core
	t     *config.Type
	tx    pgx.Tx
	w     *hot.Writes
	node  string
	now   time.Time
	types map[string]*config.Type // that are depended on

	holders map[typedKey]int64 // of the keys that are depended on
	exist   map[taskRef]bool   // of the ids that are depended on
}

// typedKey is an idempotency key of a type.
type typedKey struct {
	number int32
	key    string
}

// TypeOfDependency returns the type of the task that is depended on.
func TypeOfDependency(d asyncflow.Dependency) string { return cmp.Or(d.Task.Type, d.Type) }

// findTypes finds the types that are depended on, and marks them as awaited. The first unknown one
// has the catalog read anew, which serves all others.
func (d *dependents) findTypes(ctx context.Context, s *Trees, items []*hot.Insertion) error {
	d.types = map[string]*config.Type{}
	read := false
	for _, item := range items {
		item.Refused = nil
		for _, on := range item.DependsOn {
			name := TypeOfDependency(on)
			if d.types[name] == nil {
				on, err := s.core.Catalog.Type(d.t.Tenant, name)
				if err != nil && !read {
					on, err = s.core.Catalog.Fresh(ctx, d.t.Tenant, name)
					read = true
				}
				switch {
				case asyncflow.CodeOf(err) == asyncflow.CodeNotFound:
					continue // it will be refused
				case err != nil:
					return err
				}
				d.types[name] = on
			}
		}
	}
	var fresh []int32
	for _, on := range d.types {
		if !on.Awaited() {
			fresh = append(fresh, on.Number())
		}
	}
	return s.await(ctx, d.t.Tenant, fresh)
}

// await marks types, by their numbers, as awaited. From now on their keys are kept when the windows
// are over.
func (s *Trees) await(ctx context.Context, tenant string, numbers []int32) error {
	if len(numbers) == 0 {
		return nil
	}
	return audit.Change(ctx, s.core, tenant, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, config.NewTables(tenant, config.SharedSet).SQL(0, `UPDATE {types}
			SET awaited_since = $2 WHERE number = ANY ($1) AND awaited_since IS NULL
			RETURNING name`),
			numbers, s.core.Clock.Now())
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		return s.findPastKeys(ctx, tx, tenant, names)
	})
}

func (d *dependents) insert(ctx context.Context, items []*hot.Insertion) error {
	items, duplicates, err := d.claim(ctx, items)
	if err != nil || len(items) == 0 {
		return err
	}
	fresh, err := d.insertTasks(ctx, items)
	if err != nil {
		return err
	}
	if len(fresh) == 0 {
		return d.core.Confirm(ctx, d.tx, d.t.Tenant)
	}
	if err := d.find(ctx, fresh); err != nil {
		return err
	}
	edges := d.edges(fresh)
	b := &pgx.Batch{}
	queueEdges(b, d.t, edges)
	if err := d.tx.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	if err := d.checkChains(ctx, fresh, edges); err != nil {
		return err
	}
	if fresh, err = d.withdraw(ctx, fresh); err != nil {
		return err
	}
	for _, duplicate := range duplicates {
		duplicate.settle()
	}
	return d.insertRest(ctx, fresh)
}

// duplicate is a task with the same key as an earlier one of the transaction.
type duplicate struct{ first, second *hot.Insertion }

// settle gives the second task the result of the first one.
func (d duplicate) settle() {
	if d.first.Refused != nil {
		d.second.Refused = d.first.Refused
		d.second.Key.Holder = asyncflow.TaskID{}
	}
}

// claim takes the keys of the tasks, and returns the tasks that don't exist already, by id.
func (d *dependents) claim(
	ctx context.Context, items []*hot.Insertion,
) (fresh []*hot.Insertion, duplicates []duplicate, err error) {
	var keyed []*hot.Insertion
	byID := map[int64]*hot.Insertion{}
	for _, item := range items {
		if item.Key != nil {
			item.Key.Holder = asyncflow.TaskID{}
			item.Key.Reused = false
			keyed = append(keyed, item)
			byID[item.ID.Number] = item
		} else {
			fresh = append(fresh, item)
		}
	}
	if len(keyed) > 0 {
		slices.SortFunc(keyed, func(a, b *hot.Insertion) int {
			return cmp.Or(cmp.Compare(a.Key.Name, b.Key.Name),
				cmp.Compare(a.ID.Number, b.ID.Number))
		})
		if err := lockDependents(ctx, d.tx, d.t.Set().Tables, hot.LeasePatience); err != nil {
			return nil, nil, err
		}
		holders, _, err := hot.ClaimKeys(ctx, d.tx, d.t, keyed, d.now, hot.KeysTogether)
		if err != nil {
			return nil, nil, err
		}
		for _, item := range keyed {
			h := holders[item.Key.Name]
			if h.ID == item.ID.Number {
				fresh = append(fresh, item)
				continue
			}
			item.Refused = nil // it exists, and so do its dependencies
			item.Key.Holder = asyncflow.TaskID{Type: d.t.Name, Number: h.ID}
			item.Key.Reused = string(h.Hash) != string(item.Key.Hash[:])
			if first := byID[h.ID]; first != nil {
				duplicates = append(duplicates, duplicate{first, item})
			}
		}
	}
	slices.SortFunc(fresh,
		func(a, b *hot.Insertion) int { return cmp.Compare(a.ID.Number, b.ID.Number) })
	return fresh, duplicates, nil
}

// lockDependents lets no other transaction insert dependents with keys: two of them could make a
// cycle that neither sees. It waits that long for one.
func lockDependents(ctx context.Context, tx pgx.Tx, t *config.TableNames, patience string) error {
	b := &pgx.Batch{}
	b.Queue(`SET LOCAL lock_timeout = '` + patience + `'`)
	catalog.QueueLocks(b, t, catalog.DependentsLock, 0)
	return tx.SendBatch(ctx, b).Close()
}

// insertTasks inserts the rows of tasks, and returns the tasks that no earlier try inserted.
func (d *dependents) insertTasks(
	ctx context.Context, items []*hot.Insertion,
) (fresh []*hot.Insertion, err error) {
	inserted, err := hot.InsertMissing(ctx, d.tx, d.t, items)
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		if inserted[item.ID.Number] {
			fresh = append(fresh, item)
		}
	}
	return fresh, nil
}

// edges returns the edges of tasks, and refuses tasks that depend on missing tasks, or on
// themselves.
func (d *dependents) edges(items []*hot.Insertion) (all []edge) {
	for _, item := range items {
		var own []edge
		for i, on := range item.DependsOn {
			t := d.types[TypeOfDependency(on)]
			if t == nil {
				item.Refuse(i, "names the task type %s, which doesn't exist", TypeOfDependency(on))
				continue
			}
			e := edge{taskRef: taskRef{d.t.Number(), item.ID.Number}, n: int16(i),
				on: taskRef{t.Number(), on.Task.Number}, key: on.Key, onFailure: on.Failure()}
			if item.Key != nil {
				e.ownKey = item.Key.Name
			}
			if e.waitFor = on.Wait(); e.waitFor > 0 {
				e.until = item.Created.Add(e.waitFor)
			}
			self := e.on == e.taskRef ||
				on.Key != "" && t.Number() == d.t.Number() && item.Key != nil &&
					on.Key == item.Key.Name
			switch {
			case self:
				item.Refuse(i, "is the task itself")
			case on.Key == "" && !d.exist[e.on]:
				item.Refuse(i, "names the task %s, which doesn't exist", on.Task)
			}
			if on.Key != "" {
				e.on.id = d.holders[typedKey{t.Number(), on.Key}]
			}
			own = append(own, e)
		}
		if item.Refused == nil {
			all = append(all, own...)
		}
	}
	return all
}

// withdraw deletes the rows of refused tasks, and returns the other ones.
func (d *dependents) withdraw(
	ctx context.Context, items []*hot.Insertion,
) (accepted []*hot.Insertion, err error) {
	var ids []int64
	keys := []string{}
	for _, item := range items {
		if item.Refused == nil {
			accepted = append(accepted, item)
			continue
		}
		ids = append(ids, item.ID.Number)
		if item.Key != nil {
			keys = append(keys, item.Key.Name)
		}
	}
	if len(ids) == 0 {
		return accepted, nil
	}
	b := &pgx.Batch{}
	b.Queue(d.t.SQL(items[0].ID.Position(), DeleteRefusedSQL), d.t.Number(), ids)
	b.Queue(d.t.SQL(0, DeleteEdgesSQL), d.t.Number(), ids)
	b.Queue(d.t.SQL(0, KeyedAgainSQL), d.t.Number(), ids)
	b.Queue(d.t.SQL(0, DeleteRefusedKeysSQL), d.t.Name, keys, ids)
	return accepted, d.tx.SendBatch(ctx, b).Close()
}

// insertRest inserts what follows from new tasks: their rows in wait, a look at each, and counts.
func (d *dependents) insertRest(ctx context.Context, items []*hot.Insertion) error {
	all := records.Inserts{Node: d.node}
	d.w.Tokens = records.Tokens{}
	d.w.Counts = records.Tally{Submitted: len(items)}
	d.w.Leases = hot.AddNew(&d.w.Tokens, items, d.now)
	d.w.AddFollowing(&all, d.now)
	for _, item := range items {
		all.Outbox = append(all.Outbox,
			records.OutboxRow{Kind: records.OutboxLook, Number: d.t.Number(), ID: item.ID.Number})
	}
	b := &pgx.Batch{}
	all.Queue(b, d.now)
	return d.tx.SendBatch(ctx, b).Close()
}

const (
	// DeleteRefusedSQL and DeleteRefusedKeysSQL delete new tasks that are refused, and their keys.
	DeleteRefusedSQL = `
DELETE FROM {task} t
USING (SELECT $1::int AS type, id FROM unnest($2::bigint[]) AS id OFFSET 0) u
WHERE t.type = ANY (ARRAY[u.type]) AND t.id BETWEEN u.id AND u.id`
	DeleteRefusedKeysSQL = `
DELETE FROM {keys} k
USING (SELECT $1::text AS type, key FROM unnest($2::text[]) AS key OFFSET 0) u
WHERE k.type = ANY (ARRAY[u.type]) AND k.key BETWEEN u.key AND u.key AND k.id = ANY ($3)`
	// DeleteEdgesSQL deletes the edges of tasks.
	DeleteEdgesSQL = `
DELETE FROM {edges} e
USING (SELECT $1::int AS type, id FROM unnest($2::bigint[]) AS id OFFSET 0) u
WHERE e.type = ANY (ARRAY[u.type]) AND e.id BETWEEN u.id AND u.id`
	// KeyedAgainSQL has open edges on tasks that are refused wait for the tasks' keys: other new
	// tasks depend on these.
	KeyedAgainSQL = `
UPDATE {edges} e SET on_id = NULL
FROM (SELECT o.type, o.id, o.n FROM unnest($2::bigint[]) AS u (id), LATERAL (
    SELECT type, id, n FROM {edges}
    WHERE on_type = $1 AND on_id BETWEEN u.id AND u.id AND status IS NULL ORDER BY on_id) o
  OFFSET 0) o
WHERE e.type = ANY (ARRAY[o.type]) AND e.id BETWEEN o.id AND o.id AND e.n BETWEEN o.n AND o.n
  AND e.status IS NULL`
)
