package hot

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// leasesSQL reads the leases of some tasks of one roll. $3 to $5 are what is known of long
// journals, see LatestSQL; it also returns the last row of each journal, and the row with options.
var leasesSQL = `
SELECT l.id, l.seq, l.stage, l.attempt, l.leased_at, l.until, coalesce(l.claimer, ''),
  coalesce(l.subject, ''), l.node, coalesce(l.worker, ''), coalesce(p.options, t.options),
  t.created_at,
  coalesce(top.seq, 0), coalesce(top.at, l.leased_at), coalesce(p.seq, 0)
FROM unnest($1::bigint[], $3::smallint[], $4::timestamptz[], $5::smallint[])
  AS u (id, p_until, p_at, p_row), LATERAL (
  SELECT * FROM {lease} WHERE type = $2 AND id = u.id LIMIT 1) l, LATERAL (
  SELECT * FROM {task} WHERE type = $2 AND id = u.id LIMIT 1) t
  LEFT JOIN ` + topSQL + ` top ON true, ` +
	LatestSQL("options", "j.options IS NOT NULL", "p") + ` p ON true`

// LeasesOf returns the leases of the given tasks that are leased, without their contexts.
func (s *Path) LeasesOf(
	ctx context.Context, t *config.Type, ids []asyncflow.TaskID,
) (leases map[asyncflow.TaskID]asyncflow.Lease, err error) {
	leases = make(map[asyncflow.TaskID]asyncflow.Lease, len(ids))
	err = s.core.FollowRolls(ctx, t, func(t *config.Type) error {
		return s.core.HotOr(t.Tenant, func(db postgres.TenantDB) error {
			return db.Send(ctx, s.leasesBatch(t, ids, leases))
		})
	})
	return leases, postgres.Wrap(err, "LeasesOf(%q, %q)", t.Tenant, t.Name)
}

// leasesBatch reads the leases of some tasks, by the rolls in their ids. There are none of a
// dropped roll.
func (s *Path) leasesBatch(
	t *config.Type, ids []asyncflow.TaskID, into map[asyncflow.TaskID]asyncflow.Lease,
) *pgx.Batch {
	parts := map[int][]int64{}
	for _, id := range ids {
		if position := id.Position(); t.Has(position) {
			parts[position] = append(parts[position], id.Number)
		}
	}
	b := &pgx.Batch{}
	for position, ids := range parts {
		keys := make([]latestKey, len(ids))
		for i, id := range ids {
			keys[i] = latestKey{t.Key(), id, optionsKind}
		}
		args := slices.Concat([]any{ids, t.Number()}, s.latest.args(keys))
		b.Queue(t.SQL(position, leasesSQL), args...).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				l := asyncflow.Lease{ID: asyncflow.TaskID{Type: t.Name}}
				var options []byte
				var found latest
				err := rows.Scan(&l.ID.Number, &l.Seq, &l.Stage, &l.Attempt, &l.LeasedAt, &l.Until,
					&l.Claimer, &l.Subject, &l.Node, &l.Worker, &options, &l.CreatedAt,
					&found.until, &found.at,
					&found.row)
				if err != nil {
					return err
				}
				s.latest.note(latestKey{t.Key(), l.ID.Number, optionsKind}, found)
				if options != nil {
					if err := json.Unmarshal(options, &l.Options); err != nil {
						return err
					}
				}
				into[l.ID] = l
			}
			return rows.Err()
		})
	}
	return b
}
