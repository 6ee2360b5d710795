package store

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
)

// vacuumAfter is how many rows of a type this node moves before it vacuums the
// type's small tables. A lease walks over the index entries of rows that are gone
// until a vacuum has taken them away, and the server's own vacuum comes once a
// minute at most. Measured over 600,000 tasks in a minute: a lease cost 28 µs a
// task of the server's time without this, 5 µs with it.
const vacuumAfter = 5000

// moved counts rows of a type that were leased.
func (s *Store) moved(key TypeKey, rows int) {
	n, ok := s.churn.Load(key)
	if !ok {
		n, _ = s.churn.LoadOrStore(key, new(atomic.Int64))
	}
	n.(*atomic.Int64).Add(int64(rows))
}

// Vacuum vacuums the small tables of the types of which this node has moved many
// rows since it last did, and returns how many types there were. What another node
// is vacuuming is left to it. It blocks no reader and no writer.
func (s *Store) Vacuum(ctx context.Context) (int, error) {
	var done int
	var errs []error
	s.churn.Range(func(key, n any) bool {
		rows := n.(*atomic.Int64)
		if rows.Load() < vacuumAfter {
			return ctx.Err() == nil
		}
		rows.Store(0)
		k := key.(TypeKey)
		t, err := s.Catalog.Type(k.Tenant, k.Type)
		if err != nil { // deleted meanwhile
			s.churn.Delete(key)
			return true
		}
		errs = append(errs, s.VacuumType(ctx, t))
		done++
		return ctx.Err() == nil
	})
	return done, errors.Join(errs...)
}

// VacuumType vacuums the small tables of a type, however many rows were moved.
func (s *Store) VacuumType(ctx context.Context, t *Type) error {
	small := strings.Join(t.tables.tokenTables(t.tables.live), ", ")
	err := s.of(t.Tenant).Outside(ctx, `VACUUM (SKIP_LOCKED, TRUNCATE false, PARALLEL 0) `+small)
	if rolledOn(err) { // it will be done by the next run
		return nil
	}
	return wrap(err, "Vacuum(%q, %q)", t.Tenant, t.Name)
}
