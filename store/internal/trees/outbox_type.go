package trees

import (
	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// typesOf has types by their numbers.
type typesOf map[int32]*config.Type

// ofChildren returns the type of the children of a run of a task; nil: it is gone, or not known
// yet.
func (all typesOf) ofChildren(parent *config.Type, r records.ChildRun) *config.Type {
	if r.Type == 0 {
		return parent
	}
	return all[r.Type]
}

// typeNow returns the type of tasks as the transaction sees it; nil: it was deleted.
func (f *followUp) typeNow(t *config.Type, number int32) (*config.Type, error) {
	if t == nil {
		var exists bool
		err := f.tx.QueryRow(f.ctx, config.NewTables(f.tenant, config.SharedSet).SQL(0,
			`SELECT EXISTS (SELECT FROM {types} WHERE number = $1)`), number).Scan(&exists)
		if err == nil && exists { // this node doesn't know it yet
			err = config.ErrElsewhere
		}
		return nil, err
	}
	now, err := config.RollsNow(f.ctx, f.tx, t)
	switch {
	case asyncflow.CodeOf(err) == asyncflow.CodeNotFound:
		return nil, nil
	case err == nil && now.Number() != number: // it was deleted, and another one has its name
		return nil, nil
	}
	return now, err
}

// typeNamed returns a type as it is now; nil: there is none.
func (f *followUp) typeNamed(name string) (*config.Type, error) {
	for _, t := range f.types {
		if t.Name != name {
			continue
		}
		now, err := f.typeNow(t, t.Number())
		if now != nil || err != nil {
			return now, err
		}
	}
	var exists bool
	err := f.tx.QueryRow(f.ctx, f.shared().SQL(0,
		`SELECT EXISTS (SELECT FROM {types} WHERE name = $1)`), name).Scan(&exists)
	if err == nil && exists { // this node doesn't know it yet
		err = config.ErrElsewhere
	}
	return nil, err
}

func (f *followUp) shared() *config.TableNames {
	return config.NewTables(f.tenant, config.SharedSet)
}
