package upkeep

import (
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// mostDependents is how many tasks that depend on an ended one a step looks at. An ended task with
// more of them stays until some of these are gone.
const mostDependents = 100

// kind is a type of the tenant, by its number.
type kind struct {
	name string
	config.Type
}

// readKinds reads the types of the tenant, and where their tasks are.
func (x *trim) readKinds() (map[int32]*kind, error) {
	_, types, err := config.ReadLocations(x.ctx, x.tx, x.set.Tenant, "")
	kinds := make(map[int32]*kind, len(types))
	for name, l := range types {
		kinds[l.Number()] = &kind{name: name, Type: config.Type{Location: l}}
	}
	return kinds, err
}

// markNeeded notes which ended tasks others need: the children of tasks that are kept in one type,
// or still live; tasks on which live ones depend; tasks that start others, or with an end that
// isn't told yet; and failed tasks that block their flow key.
func (x *trim) markNeeded(all []ended, kinds map[int32]*kind) error {
	if err := x.markBlockers(all, kinds); err != nil {
		return err
	}
	of, err := x.dependents(all)
	if err != nil {
		return err
	}
	parents, err := x.joinedParents(all)
	if err != nil {
		return err
	}
	ask := map[taskRef]bool{}
	for _, list := range of {
		for _, ref := range list {
			ask[ref] = true
		}
	}
	for ref := range parents {
		ask[ref] = true
	}
	live, err := x.live(ask, kinds)
	if err != nil {
		return err
	}
	for i, list := range of {
		all[i].needed = all[i].needed || len(list) > mostDependents
		for _, ref := range list {
			all[i].needed = all[i].needed || live[ref]
		}
	}
	return x.markChildren(all, live)
}

// markBlockers notes the tasks with something left to do, or block their flow key. Live ones can't
// be among them; should one be, it stays.
func (x *trim) markBlockers(all []ended, kinds map[int32]*kind) error {
	names := make([]string, len(all))
	keys := make([]string, len(all))
	for i, e := range all {
		keys[i] = e.options.FlowKey
		if k := kinds[e.number]; k != nil {
			names[i] = k.name
		} else {
			all[i].needed = true // its type is being deleted, with all its rows
		}
	}
	numbers, ids := columns(refsOf(all))
	rows, _ := x.tx.Query(x.ctx, x.sql(`SELECT u.n - 1
		FROM unnest($1::int[], $2::bigint[], $3::text[], $4::text[])
		  WITH ORDINALITY AS u (type, id, name, key, n)
		WHERE (SELECT true FROM {spawns} s WHERE s.type = u.type AND s.id = u.id
		    AND s.tasks IS NOT NULL LIMIT 1)
		  OR (SELECT true FROM {outbox} o WHERE o.kind = 'final' AND o.type = u.type
		    AND o.id = u.id LIMIT 1)
		  OR (SELECT true FROM {blocks} b WHERE b.type = u.name AND b.key = u.key AND b.id = u.id)
		  OR (SELECT true FROM {wait} w WHERE w.type = u.type AND w.id = u.id)
		  OR (SELECT true FROM {lease} l WHERE l.type = u.type AND l.id = u.id)`),
		numbers, ids, names, keys)
	var n int
	_, err := pgx.ForEachRow(rows, []any{&n}, func() error {
		all[n].needed = true
		return nil
	})
	return err
}

// dependents returns the tasks that depend on each of the ended ones, up to one more than
// mostDependents. There is an index for each of the three parts.
func (x *trim) dependents(all []ended) (map[int][]taskRef, error) {
	numbers, ids := columns(refsOf(all))
	const of = `(SELECT e.type, e.id FROM {edges} e WHERE e.on_type = u.type AND e.on_id = u.id
		AND e.status `
	rows, _ := x.tx.Query(x.ctx, x.sql(`SELECT u.n - 1, e.type, e.id
		FROM unnest($1::int[], $2::bigint[]) WITH ORDINALITY AS u (type, id, n), LATERAL (
		  `+of+`IS NULL LIMIT $3) UNION ALL `+of+`<> 'succeeded' LIMIT $3) UNION ALL
		  `+of+`= 'succeeded' LIMIT $3) LIMIT $3) e`), numbers, ids, mostDependents+1)
	var n int
	var ref taskRef
	dependents := map[int][]taskRef{}
	_, err := pgx.ForEachRow(rows, []any{&n, &ref.number, &ref.id}, func() error {
		dependents[n] = append(dependents[n], ref)
		return nil
	})
	return dependents, err
}

// parentOf returns the task that waited, or waits, for an ended one.
func parentOf(e *ended) (parent taskRef, ok bool) {
	at, ok := e.options.ParentWaits(e.number)
	return taskRef{at.Type, at.ID}, ok
}

// joinedParents returns the parents of ended tasks, with their joins locked: until the end of the
// transaction no parent is redriven.
func (x *trim) joinedParents(all []ended) (map[taskRef]bool, error) {
	parents := map[taskRef]bool{}
	for i := range all {
		if parent, ok := parentOf(&all[i]); ok {
			parents[parent] = true
		}
	}
	if len(parents) == 0 {
		return parents, nil
	}
	numbers, ids := columns(keysOf(parents))
	_, err := x.tx.Exec(x.ctx, x.sql(`SELECT FROM unnest($1::int[], $2::bigint[]) AS u (type, id)
		JOIN {fan_outs} f ON f.type = u.type AND f.id = u.id
		WHERE f.types IS NOT NULL AND f.closed FOR SHARE OF f`), numbers, ids)
	return parents, err
}

// markChildren notes the ended tasks with a parent that may still read their results: it waits for
// them, or is live, or all its children are of its own type, and is kept.
func (x *trim) markChildren(all []ended, live map[taskRef]bool) error {
	parents := make([]taskRef, len(all))
	for i := range all {
		parents[i], _ = parentOf(&all[i])
	}
	numbers, ids := columns(parents)
	rows, _ := x.tx.Query(x.ctx, x.sql(`SELECT u.n - 1, f.joined
		FROM unnest($1::int[], $2::bigint[]) WITH ORDINALITY AS u (type, id, n), LATERAL (
		  SELECT bool_and(types IS NOT NULL AND closed) AS joined FROM {fan_outs}
		  WHERE type = u.type AND id = u.id) f
		WHERE f.joined IS NOT NULL ORDER BY u.n`), numbers, ids)
	kept := map[int]bool{} // by children: their parents need them, unless these go first
	var n int
	var joined bool
	_, err := pgx.ForEachRow(rows, []any{&n, &joined}, func() error {
		kept[n] = !joined || live[parents[n]]
		return nil
	})
	goes := map[taskRef]bool{}
	for i := range all {
		all[i].needed = all[i].needed || kept[i] && !goes[parents[i]]
		goes[all[i].taskRef] = !all[i].needed
	}
	return err
}

// live returns the tasks that are there, and not final.
func (x *trim) live(ask map[taskRef]bool, kinds map[int32]*kind) (map[taskRef]bool, error) {
	tables := map[string][]taskRef{} // by the statement that reads them
	for ref := range ask {
		position := asyncflow.TaskID{Number: ref.id}.Position()
		if k := kinds[ref.number]; k != nil && k.Has(position) {
			sql := k.SetAt(position).Tables.SQL(position, `SELECT u.type, u.id
				FROM unnest($1::int[], $2::bigint[]) AS u (type, id)
				WHERE (SELECT true FROM {task} t WHERE t.type = u.type AND t.id = u.id)
				  AND coalesce((SELECT final FROM {journal} j WHERE j.type = u.type AND j.id = u.id
				    ORDER BY seq DESC LIMIT 1), '') = ''`)
			tables[sql] = append(tables[sql], ref)
		}
	}
	live := map[taskRef]bool{}
	for sql, refs := range tables {
		numbers, ids := columns(refs)
		rows, _ := x.tx.Query(x.ctx, sql, numbers, ids)
		var ref taskRef
		_, err := pgx.ForEachRow(rows, []any{&ref.number, &ref.id}, func() error {
			live[ref] = true
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return live, nil
}

func refsOf(all []ended) []taskRef {
	refs := make([]taskRef, len(all))
	for i := range all {
		refs[i] = all[i].taskRef
	}
	return refs
}

func keysOf(set map[taskRef]bool) (refs []taskRef) {
	for ref := range set {
		refs = append(refs, ref)
	}
	return refs
}
