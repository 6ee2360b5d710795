package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// For tests that look at the plans of the hot statements.
var HotSettings = hotSettings

const (
	TakeReadySQL = takeReadySQL
	HeadSQL      = headSQL

	TakeLeaseSQL   = takeLeaseSQL
	ExtendLeaseSQL = extendLeaseSQL
)

// Fill returns a statement with the type's table names in it.
func (t *Type) Fill(sql string) string { return t.tables.at(t.Begin, sql) }

// ForgetNumbers has the next submits take new blocks of numbers.
func (s *Store) ForgetNumbers() { s.numbers = newNumbers(s) }

// FoldBatch is the most rows that a fold takes at once.
const FoldBatch = foldBatch

// SubmitAgain submits the first of two tasks, and then both, as after a commit whose
// answer was lost.
func (s *Store) SubmitAgain(ctx context.Context, tenant string, tasks [2]asyncflow.NewTask) error {
	key := TypeKey{tenant, tasks[0].Type}
	items, err := s.newItems(ctx, tenant, key.Type, tasks[:], []int{0, 1}, make([]Submitted, 2))
	if err != nil {
		return err
	}
	if _, err := s.insertBatch(ctx, key, items[:1]); err != nil {
		return err
	}
	t, err := s.Catalog.Type(tenant, key.Type)
	if err != nil {
		return err
	}
	return s.insertAgain(ctx, t, items, s.Clock.Now())
}

// MigrateSchema exposes migrateSchema.
var MigrateSchema = migrateSchema

// SubmitAcrossARoll submits two tasks as after a commit whose answer was lost, which had
// only the first of them; between the two tries between is called.
func (s *Store) SubmitAcrossARoll(ctx context.Context, tenant string, tasks [2]asyncflow.NewTask, between func()) error {
	key := TypeKey{tenant, tasks[0].Type}
	items, err := s.newItems(ctx, tenant, key.Type, tasks[:], []int{0, 1}, make([]Submitted, 2))
	if err != nil {
		return err
	}
	if _, err := s.insertBatch(ctx, key, items[:1]); err != nil {
		return err
	}
	between()
	_, err = s.insertBatch(ctx, key, items)
	return err
}

// PageLook is the most candidates that are looked at for a page.
const PageLook = pageLook

// ExplainPage returns the plans of the statements of a filter's widest look, carried
// out, as JSON.
func (s *Store) ExplainPage(ctx context.Context, t *Type, f Filter) (plans []string, err error) {
	c, err := s.criteriaFor(ctx, t, f)
	if err != nil {
		return nil, err
	}
	window := []any{asyncflow.NewTaskID(t.Name, t.End, 0).Number, asyncflow.NewTaskID(t.Name, t.End+1, 0).Number, pageLook}
	for sql, args := range map[string][]any{c.windowSQL(): window, c.listSQL(): append(append(window[:3:3], f.Limit), c.args(t)...)} {
		plan, err := s.explain(ctx, t.tables.at(t.End, sql), args...)
		if err != nil {
			return nil, err
		}
		plans = append(plans, plan)
	}
	return plans, nil
}

func (s *Store) explain(ctx context.Context, sql string, args ...any) (plan string, err error) {
	err = s.searching(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `EXPLAIN (ANALYZE, FORMAT JSON) `+sql, args...).Scan(&plan)
	})
	return plan, err
}

// InsertAudit exposes insertAudit.
var InsertAudit = insertAudit

// ForgetWritten has an act look as after a commit whose answer was lost.
func (a *Act) ForgetWritten() { a.written = false }
