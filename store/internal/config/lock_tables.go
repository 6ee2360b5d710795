package config

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// oneRowSQL returns the number that Citus gave a table, and whether the user owns it; no row: the
// table isn't distributed, or hot transactions can't take the lock of postgres.PlacedTables.
const oneRowSQL = `SELECT s.shardid, pg_has_role(c.relowner, 'USAGE')
FROM pg_dist_shard s JOIN pg_class c ON c.oid = s.logicalrelid
WHERE s.logicalrelid = to_regclass($1)
  AND to_regprocedure('pg_catalog.lock_shard_metadata(integer,bigint[])') IS NOT NULL`

// LockTables locks tables of a tenant, in a mode of LOCK TABLE that stops writers, until the
// transaction ends.
//
// Citus takes such a lock on the tables that it shows, on all servers, but hot transactions write
// to the tables of the worker. They all take one lock of the tenant there, in mode 5, for which
// see postgres.PlacedTables. So this transaction takes it in mode 7, which waits for them and keeps
// later ones out. The worker runs the statement, as it reads a table of the tenant, with one row.
// Before, the transaction takes the lock at the coordinator as any writer does, and as moves do.
//
// Only the owner of the tables can have that lock. For another user it is CodeUnavailable: a node
// of the owner may write meanwhile, and what it writes would be lost.
func LockTables(
	ctx context.Context, tx pgx.Tx, tenant string, tables []string, mode string,
) error {
	_, err := tx.Exec(ctx, `LOCK TABLE `+strings.Join(tables, ", ")+` IN `+mode+` MODE`)
	if err != nil || !postgres.Distributed(tx) {
		return err
	}
	oneRow := NewTables(tenant, SharedSet).Qualify("numbering")
	var number int64
	var owned bool
	err = tx.QueryRow(ctx, oneRowSQL, oneRow).Scan(&number, &owned)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	if !owned {
		return asyncflow.Errorf(asyncflow.CodeUnavailable, "the user of DATABASE_URL must own the "+
			"tables of tenant %s, which Citus has distributed, to lock them", tenant)
	}
	b := &pgx.Batch{}
	b.Queue(`SELECT lock_shard_metadata(5, ARRAY[$1::bigint])`, number)
	b.Queue(`SELECT lock_shard_metadata(7, ARRAY[$1::bigint]) FROM `+oneRow, number)
	return tx.SendBatch(ctx, b).Close()
}
