package tasks

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// ExplainPage returns the plans of the statements of a filter's widest look, carried
// out, as JSON.
func (s *lists) ExplainPage(
	ctx context.Context, t *config.Type, f Filter,
) (plans []string, err error) {
	c, err := s.criteriaFor(ctx, t, f)
	if err != nil {
		return nil, err
	}
	c.bytes = PageText
	if c, err = c.inRoll(ctx, s.core.DB(t.Tenant), t, t.End); err != nil {
		return nil, err
	}
	window := c.windowArgs(t, asyncflow.NewTaskID(t.Name, t.End, 0).Number,
		asyncflow.NewTaskID(t.Name, t.End+1, 0).Number, PageLook)
	for sql, args := range map[string][]any{
		c.windowSQL(): window,
		c.listSQL():   append(append(slices.Clip(window), f.Limit), c.args(t)...),
	} {
		plan, err := s.explain(ctx, t.Tenant, t.SQL(t.End, sql), args...)
		if err != nil {
			return nil, err
		}
		plans = append(plans, plan)
	}
	return plans, nil
}

func (s *lists) explain(
	ctx context.Context,
	tenant, sql string,
	args ...any,
) (plan string, err error) {
	err = s.searching(ctx, tenant, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `EXPLAIN (ANALYZE, FORMAT JSON) `+sql, args...).Scan(&plan)
	})
	return plan, err
}
