package checkup

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// citus notes whether the database has the extension Citus.
func (c *checkup) citus(ctx context.Context, f *findings) error {
	version, err := schema.CitusVersion(ctx, c.conn)
	if err != nil || version == "" {
		return err
	}
	var workers, tenants int
	err = c.conn.QueryRow(ctx, `SELECT
		(SELECT count(*) FROM pg_catalog.pg_dist_node WHERE shouldhaveshards AND isactive),
		(SELECT count(*) FROM pg_catalog.pg_dist_schema JOIN pg_namespace n ON n.oid = schemaid
		  WHERE starts_with(nspname, $1))`, schema.Of("")).Scan(&workers, &tenants)
	f.add(LevelNote, "back up each of these servers as well",
		"the database has the extension Citus %s: %d tenants are distributed over %d workers",
		version, tenants, workers)
	return err
}

// everyServer returns a check that runs at the server of the URL and, once Citus has distributed a
// tenant, at each of its workers. A worker that can't be reached is a finding.
func everyServer(
	run func(*checkup, context.Context, *findings) error,
) func(*checkup, context.Context, *findings) error {
	return func(c *checkup, ctx context.Context, f *findings) error {
		if err := run(c, ctx, f); err != nil {
			return err
		}
		workers, err := c.workers(ctx)
		for _, worker := range workers {
			f.server = fmt.Sprintf("worker %s:%d: ", worker.Host, worker.Port)
			if err := c.runAt(ctx, worker, f, run); err != nil {
				f.add(LevelWarning, checkAgain, "could not be checked: %s", err)
			}
		}
		f.server = ""
		return err
	}
}

// workers returns the workers of Citus if tenants are distributed.
func (c *checkup) workers(ctx context.Context) ([]postgres.Server, error) {
	var distributed bool
	err := c.conn.QueryRow(ctx, `SELECT `+postgres.DistributedSQL).Scan(&distributed)
	if err != nil || !distributed {
		return nil, err
	}
	rows, _ := c.conn.Query(ctx, `SELECT nodename AS host, nodeport AS port
		FROM pg_catalog.pg_dist_node
		WHERE noderole = 'primary' AND shouldhaveshards AND groupid > 0 ORDER BY 1, 2`)
	return pgx.CollectRows(rows, pgx.RowToStructByName[postgres.Server])
}

// runAt runs a check at a worker.
func (c *checkup) runAt(
	ctx context.Context, worker postgres.Server, f *findings,
	run func(*checkup, context.Context, *findings) error,
) error {
	conn, err := postgres.ConnectTo(ctx, c.url, worker)
	if err != nil {
		return err
	}
	there := *c
	there.conn = conn
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return run(&there, ctx, f)
}
