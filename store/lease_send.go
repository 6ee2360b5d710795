package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// LeaseName names a lease of a type.
type LeaseName struct {
	ID  int64
	Seq int
}

// BeginSending writes down that unsent leases of a type are sent from now on, so that they count as
// attempts, whatever happens. It returns which of them still stand, each by its id and seq.
func (s *hotPath) BeginSending(
	ctx context.Context, t *Type, leases []asyncflow.Lease,
) (standing map[LeaseName]bool, err error) {
	rows, err := s.hot(t.Tenant).Query(ctx, t.at(0, beginSendingSQL),
		column(leases, func(l *asyncflow.Lease) int64 { return l.ID.Number }),
		column(leases, func(l *asyncflow.Lease) int { return l.Seq }), t.number)
	if err != nil {
		return nil, wrap(err, "BeginSending(%q, %q)", t.Tenant, t.Name)
	}
	var one LeaseName
	standing = make(map[LeaseName]bool, len(leases))
	_, err = pgx.ForEachRow(rows, []any{&one.ID, &one.Seq}, func() error {
		standing[one] = true
		return nil
	})
	return standing, wrap(err, "BeginSending(%q, %q)", t.Tenant, t.Name)
}

const beginSendingSQL = `
UPDATE {lease} l SET unsent = NULL FROM unnest($1::bigint[], $2::int[]) AS u (id, seq)
WHERE l.type = $3 AND l.id = u.id AND l.seq = u.seq
RETURNING l.id, l.seq`
