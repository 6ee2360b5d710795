package checkup

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// checkTime bounds each check.
const checkTime = 10 * time.Second

// checkup has what the checks share.
type checkup struct {
	url         string
	pooled      string // "": there is no other way
	noRoles     bool   // the nodes use no database roles
	conn        *pgx.Conn
	certificate Certificate
	old         time.Duration // from which age on a transaction is reported
	dead        int64         // from which number of dead rows on a table is reported
	deadHot     int64         // the same of a table from which tasks are leased
}

// check is one of the things that Examine looks at.
type check struct {
	name string
	page string // of the manual, within docs
	well string // what to say if nothing is found
	run  func(*checkup, context.Context, *findings) error
}

// checks are all, in the order of their output. What comes later means little without what comes
// before.
var checks = []check{
	{"pooler", "providers.md#poolers", "the connection is direct", (*checkup).pooler},
	{"server", "operations.md#setting-up", "the server accepts writes and keeps what it confirms",
		everyServer((*checkup).server)},
	{"clock", "operations.md#setting-up", "the clocks of this machine and the server agree",
		(*checkup).clock},
	{"schema", "operations.md#migrations", "all schemas are current", (*checkup).schemas},
	{"roles", "security.md#tenants", "all database roles are there", (*checkup).roles},
	{"notify", "operations.md#setting-up", "NOTIFY comes through", (*checkup).notify},
	{"transactions", "operations.md#what-to-watch", "no transaction is old",
		everyServer((*checkup).transactions)},
	{"vacuum", "operations.md#what-to-watch", "no table has many dead rows",
		everyServer((*checkup).vacuum)},
	{"nodes", "alerts.md#node_gone", "all nodes are alive", (*checkup).nodes},
	{"jobs", "alerts.md#job_overdue", "all background jobs succeed", (*checkup).jobs},
	{"rolls", "alerts.md#roll_overdue", "no roll is overdue", (*checkup).rolls},
	{"endpoints", "alerts.md#endpoint_missing", "each stage has an endpoint",
		(*checkup).endpoints},
	{"claimers", "alerts.md#no_claimers", "each claim stage is asked for tasks",
		(*checkup).claimers},
	{"secrets", "endpoints.md#secrets-and-their-rotation", "no endpoint's secret is about to end",
		(*checkup).secrets},
	{"certificates", "endpoints.md#certificates", "no endpoint's certificate is about to end",
		(*checkup).certificates},
}

// Examine looks at the installation in a database, check by check. A check that fails or takes
// over 10 s is a finding of its own. An error means that there was no connection at all. pooled is
// the URL of pooled connections, "" for none. noRoles says that the nodes use no database roles.
func Examine(
	ctx context.Context, url, pooled string, noRoles bool, certificate Certificate,
) ([]Finding, error) {
	conn, err := postgres.Connect(ctx, url)
	if err != nil {
		return nil, postgres.ConnectError(url, err)
	}
	c := &checkup{url: url, pooled: pooled, noRoles: noRoles, conn: conn, certificate: certificate,
		old: oldTransaction, dead: manyDead, deadHot: manyDeadHot}
	defer func() { _ = c.conn.Close(context.WithoutCancel(ctx)) }()
	var all []Finding
	for _, one := range checks {
		all = append(all, c.one(ctx, one)...)
		if ctx.Err() != nil {
			return all, ctx.Err()
		}
	}
	return all, nil
}

// checkAgain is what to do about a check that failed.
const checkAgain = "do what the error suggests, and run the doctor again"

// checkAsNode is what to do about a check that needs more rights, such as pg_monitor's.
const checkAsNode = "run the doctor as the user of the nodes"

func (c *checkup) one(ctx context.Context, one check) []Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	found := &findings{check: one.name, page: one.page}
	err := c.look(ctx, one, found)
	switch {
	case postgres.IsRefused(err):
		found.add(LevelWarning, checkAsNode, "could not be looked at by this user: %s", err)
	case err != nil:
		found.add(LevelWarning, checkAgain, "could not be checked: %s", err)
	}
	return found.end(one.well)
}

// look runs a check, which adds what it finds.
func (c *checkup) look(ctx context.Context, one check, found *findings) error {
	if err := c.connected(ctx); err != nil {
		return err
	}
	return one.run(c, ctx, found)
}

// connected connects again if a check before ran out of time: that closes its connection.
func (c *checkup) connected(ctx context.Context) (err error) {
	if !c.conn.IsClosed() {
		return nil
	}
	conn, err := postgres.Connect(ctx, c.url)
	if err != nil {
		return err
	}
	c.conn = conn
	return nil
}

// ago writes how long ago a time was, in whole seconds.
func ago(now, t time.Time) string {
	return fmt.Sprintf("%s ago", now.Sub(t).Round(time.Second))
}
