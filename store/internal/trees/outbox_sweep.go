package trees

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// FirstFollowUps returns when the first of what is left to do for each of some tenants is due. It
// leaves out tenants for which there is nothing.
func (s *Trees) FirstFollowUps(
	ctx context.Context, tenants []string,
) (map[string]time.Time, error) {
	all, err := s.core.FirstTimes(ctx, tenants,
		`SELECT i, least((SELECT min(due) FROM {schema}.outbox),
		(SELECT min(until) FROM {schema}.edges WHERE status IS NULL),
		(SELECT min(until) FROM {schema}.signal_waits WHERE NOT late))`)
	return all, postgres.Wrap(err, "FirstFollowUps")
}

// SweepWaits ends the waits for tasks and signals that didn't come in time. It returns how many of
// them, and of the rows that FollowUp has to handle, are due, and reports whether more waits may
// have to end.
func (s *Trees) SweepWaits(ctx context.Context, tenant string) (n int, more bool, err error) {
	due, err := s.DryRunFollowUps(ctx, tenant)
	for _, d := range due {
		n += d.Rows
	}
	if err != nil || n == 0 {
		return n, false, err
	}
	late, err := s.SweepEdges(ctx, tenant)
	if err != nil {
		return n, false, err
	}
	timedOut, err := s.SweepSignalWaits(ctx, tenant)
	return n, late == catalog.JobBatch || timedOut == catalog.JobBatch, err
}

// DryRunFollowUps counts the rows that are due: waits that end, and what FollowUp has to handle.
func (s *Trees) DryRunFollowUps(ctx context.Context, tenant string) ([]catalog.Due, error) {
	n := 0
	now := s.core.Clock.Now()
	err := s.core.DB(tenant).QueryRow(ctx, config.NewTables(tenant, config.SharedSet).SQL(0, `
		SELECT (SELECT count(*) FROM {outbox} WHERE due <= $1)
		  + (SELECT count(*) FROM {edges} WHERE status IS NULL AND until <= $1)
		  + (SELECT count(*) FROM {signal_waits} WHERE NOT late AND until <= $1)`), now).Scan(&n)
	if err != nil || n == 0 {
		return nil, postgres.Wrap(err, "DryRunFollowUps(%q)", tenant)
	}
	return []catalog.Due{{Tenant: tenant, Rows: n}}, nil
}
