package trees

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// find finds the tasks that new tasks depend on: which ids exist, and to which tasks keys belong.
func (d *dependents) find(ctx context.Context, items []*hot.Insertion) error {
	ids := map[string][]int64{}
	keys := map[string][]string{}
	for _, item := range items {
		for _, on := range item.DependsOn {
			if on.Key != "" {
				keys[on.Type] = append(keys[on.Type], on.Key)
			} else {
				ids[on.Task.Type] = append(ids[on.Task.Type], on.Task.Number)
			}
		}
	}
	d.holders = map[typedKey]int64{}
	d.exist = map[taskRef]bool{}
	for _, name := range slices.Sorted(maps.Keys(d.types)) {
		t := d.types[name]
		tag, err := d.tx.Exec(ctx, t.SQL(0, // so that it isn't deleted meanwhile
			`SELECT FROM {types} WHERE number = $1 FOR KEY SHARE`), t.Number())
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			delete(d.types, name) // it was deleted a moment ago
			continue
		}
		t, err = config.RollsNow(ctx, d.tx, t)
		if err != nil {
			return err
		}
		held, err := d.findKeys(ctx, t, keys[name])
		if err != nil {
			return err
		}
		if err := d.findIDs(ctx, t, append(ids[name], held...)); err != nil {
			return err
		}
		d.forgetGone(t.Number())
	}
	return nil
}

// findIDs finds which tasks exist. They stay until the transaction ends: it locks their rolls
// before it looks, in the order of their positions.
func (d *dependents) findIDs(ctx context.Context, t *config.Type, ids []int64) error {
	rolls := config.ByPosition(ids)
	for _, position := range slices.Sorted(maps.Keys(rolls)) {
		if !t.Has(position) {
			continue
		}
		kept, err := config.KeepRoll(ctx, d.tx, t.SetAt(position), position)
		if err != nil {
			return err
		}
		if !kept {
			continue
		}
		rows, err := d.tx.Query(ctx, t.SQL(position,
			`SELECT id FROM (`+records.CreatedSQL+`) t`), rolls[position], t.Number())
		if err != nil {
			return err
		}
		found := map[int64]bool{}
		if err := hot.CollectIDs(rows, found); err != nil {
			return err
		}
		for id := range found {
			d.exist[taskRef{t.Number(), id}] = true
		}
	}
	return nil
}

// findKeys finds the tasks to which keys belong, and returns their ids.
func (d *dependents) findKeys(
	ctx context.Context, t *config.Type, keys []string,
) (ids []int64, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	rows, _ := d.tx.Query(ctx, t.SQL(0, `SELECT key, id FROM {keys}
		WHERE type = $1 AND key = ANY ($2) AND expires_at > $3 AND id >= $4`),
		t.Name, keys, d.now, asyncflow.NewTaskID(t.Name, t.First, 0).Number)
	var key string
	var id int64
	_, err = pgx.ForEachRow(rows, []any{&key, &id}, func() error {
		d.holders[typedKey{t.Number(), key}] = id
		ids = append(ids, id)
		return nil
	})
	return ids, err
}

// forgetGone frees keys of a type for later tasks if their tasks were just dropped, with the keys.
func (d *dependents) forgetGone(number int32) {
	maps.DeleteFunc(d.holders, func(key typedKey, id int64) bool {
		return key.number == number && !d.exist[taskRef{number, id}]
	})
}
