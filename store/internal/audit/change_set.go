package audit

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// ChangeSet runs do in a transaction that locks the row of a table set, and notifies all nodes of
// the change unless do returns ErrSame. at is the set as it is now.
func ChangeSet(
	ctx context.Context, core *catalog.Core, set *config.TableSet,
	do func(tx pgx.Tx, at config.TableSet, now time.Time) error,
) error {
	err := Change(ctx, core, set.Tenant, func(tx pgx.Tx) error {
		at, err := config.LockSet(ctx, tx, set)
		if errors.Is(err, pgx.ErrNoRows) { // another node just removed it
			return postgres.ErrSame
		}
		if err != nil {
			return err
		}
		return do(tx, at, core.Clock.Now())
	})
	if errors.Is(err, postgres.ErrSame) {
		return nil
	}
	return err
}
