package hot

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// LeaseName names a lease of a type.
type LeaseName struct {
	ID  int64
	Seq int
}

// BeginSending writes down that unsent leases of a type are sent from now on, so that they count as
// attempts, whatever happens. It returns which of them still stand, each by its id and seq.
func (s *Path) BeginSending(
	ctx context.Context, t *config.Type, leases []asyncflow.Lease,
) (standing map[LeaseName]bool, err error) {
	rows, _ := s.core.HotDB(t.Tenant).Query(ctx, t.SQL(0, beginSendingSQL),
		records.Column(leases, func(l *asyncflow.Lease) int64 { return l.ID.Number }),
		records.Column(leases, func(l *asyncflow.Lease) int { return l.Seq }), t.Number())
	var one LeaseName
	standing = make(map[LeaseName]bool, len(leases))
	_, err = pgx.ForEachRow(rows, []any{&one.ID, &one.Seq}, func() error {
		standing[one] = true
		return nil
	})
	return standing, postgres.Wrap(err, "BeginSending(%q, %q)", t.Tenant, t.Name)
}

const beginSendingSQL = `
UPDATE {lease} l SET unsent = NULL FROM unnest($1::bigint[], $2::int[]) AS u (id, seq)
WHERE l.type = $3 AND l.id = u.id AND l.seq = u.seq
RETURNING l.id, l.seq`
