package upkeep

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// OpenRoll makes the tables of the next roll of a table set, which gets the new tasks from then on.
// It does nothing while an earlier roll is not drained, so that tasks are leased from two rolls at
// most. It also does nothing if the rolls changed since set was read, or if the open roll is the
// last that ids can name: that roll then takes all tasks to come.
func (s *Upkeep) OpenRoll(ctx context.Context, set *config.TableSet) (opened bool, err error) {
	err = audit.ChangeSet(ctx, s.core, set, func(tx pgx.Tx, at config.TableSet,
		now time.Time) error {
		if set.Closed || at.End != set.End || at.Begin != at.End ||
			at.End == asyncflow.MaxPosition {
			return postgres.ErrSame
		}
		opened = true
		return at.OpenNext(ctx, tx, now)
	})
	return opened && err == nil, postgres.Wrap(err, "OpenRoll(%q, %q)", set.Tenant, set.Name)
}
