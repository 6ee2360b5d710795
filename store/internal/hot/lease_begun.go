package hot

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// begunSQL reports whether an attempt of a task began before the row $3 of its journal, since its
// submit or its last redrive; with $4, in this visit of its stage, of the names $5. A visit begins
// behind the last row that ended one, and behind the last row of another stage: an on_failure or a
// timeout leads there, too.
var begunSQL = `
SELECT EXISTS (SELECT FROM {journal} WHERE type = $1 AND id = $2 AND seq < $3
  AND outcome NOT IN (` + asyncflow.NotBegun + `) AND seq > coalesce((
    SELECT max(seq) FROM {journal} WHERE type = $1 AND id = $2 AND seq < $3
      AND (final IS NOT NULL OR $4 AND (outcome IN ('done', 'joined', 'signalled')
        OR stage <> ALL ($5)))), -1))`

// QueueBegun asks, if a time to begin of a leased task is over, whether an attempt had begun
// before. It sets Begun with the batch.
func QueueBegun(b *pgx.Batch, t *config.Type, l *asyncflow.Lease, now time.Time) {
	_, ask := t.Overdue(l, now)
	if ask == asyncflow.Certain {
		return
	}
	b.Queue(t.SQL(l.ID.Position(), begunSQL), t.Number(), l.ID.Number, l.Seq,
		ask == asyncflow.BegunInStage, t.NamesOf(l.Stage)).QueryRow(func(row pgx.Row) error {
		var began bool
		err := row.Scan(&began)
		if began {
			l.Begun |= ask
		}
		return err
	})
}

// SetBegun finds out whether a leased task may be sent although a time to begin is over: an attempt
// had begun in time. It sets Begun, and returns why the task must not be sent; "": it may.
func (s *Path) SetBegun(
	ctx context.Context, t *config.Type, l *asyncflow.Lease, now time.Time,
) (why string, err error) {
	for range 2 { // of the task, and in its stage
		err := s.core.HotOr(t.Tenant, func(db postgres.TenantDB) error {
			b := &pgx.Batch{}
			if QueueBegun(b, t, l, now); b.Len() == 0 {
				return nil
			}
			return db.Send(ctx, b)
		})
		if err != nil {
			return "", postgres.Wrap(err, "SetBegun(%s)", l.ID)
		}
	}
	why, _ = t.Overdue(l, now)
	return why, nil
}
