package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// exclusively runs do in a transaction of a tenant that has the lock of a job, so that no two
// nodes do the same at once. A node that was stopped keeps the lock for 5 s at most. While
// another node has the lock, exclusively doesn't call do. now is the database's time.
func (s *Store) exclusively(
	ctx context.Context,
	tenant, job string,
	do func(tx pgx.Tx, now time.Time) error,
) error {
	return pgx.BeginFunc(ctx, s.of(tenant), func(tx pgx.Tx) error {
		var ours bool
		var now time.Time
		err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1), clock_timestamp()`,
			JobLock(job)).Scan(&ours, &now)
		if err != nil || !ours {
			return err
		}
		return do(tx, now)
	})
}

// JobLock returns the key of the advisory lock of a job.
func JobLock(job string) int64 { return postgres.LockKey(job) }
