package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/asyncflow/asyncflow"
)

// Settings are sent and checked once a connection is open. As startup parameters, a pooler such as
// PgBouncer would refuse them or, as it is often told to, drop them without a word. A pooler in
// transaction mode would lose them or give them to its other clients: it gets none, see
// checkKeepsSession.

// Setup sets up a new connection.
type Setup func(context.Context, *pgconn.PgConn) error

// ConfigFor returns the configuration of a connection with settings, outside any pool. Then, unless
// it is nil, runs last.
func ConfigFor(url string, settings map[string]string, then Setup) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.ConnectTimeout = ConnectTimeout
	cfg.DialFunc = dialer.DialContext
	cfg.OnNotice = noteNotReplicated
	cfg.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if err := set(ctx, conn, &cfg.Config, settings); err != nil || then == nil {
			return err
		}
		return then(ctx, conn)
	}
	return cfg, nil
}

// merged merges maps of settings. A later map's settings win.
func merged(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, some := range all {
		maps.Copy(out, some)
	}
	return out
}

// set sets the settings of a new connection, and checks in a second transaction that they last:
// behind a pooler, that may be another session's. A pooler gets no setting before it is shown to
// keep sessions. Functions are named with their schema, as the search path is still any.
func set(
	ctx context.Context, conn *pgconn.PgConn, config *pgconn.Config, settings map[string]string,
) error {
	names := slices.Sorted(maps.Keys(settings))
	var setting, direct, reading []string
	for _, name := range names {
		value := strings.ReplaceAll(settings[name], "'", "''")
		call := fmt.Sprintf("pg_catalog.set_config('%s', '%s', false)", name, value)
		setting = append(setting, call)
		direct = append(direct, fmt.Sprintf("CASE WHEN %s THEN %s END", isDirect(conn), call))
		reading = append(reading, fmt.Sprintf("pg_catalog.current_setting('%s')", name))
	}
	setting = append(setting, processSQL)
	direct = append(direct, processSQL)
	reading = append(reading, processSQL)
	want, err := firstRow(ctx, conn, "SELECT "+strings.Join(direct, ", "))
	if err == nil && want[0] == nil { // a pooler stands before the server
		if err := checkKeepsSession(ctx, conn, config); err != nil {
			return err
		}
		want, err = firstRow(ctx, conn, "SELECT "+strings.Join(setting, ", "))
	}
	if err != nil {
		return settingError(err)
	}
	have, err := firstRow(ctx, conn, "SELECT "+strings.Join(reading, ", "))
	if err != nil {
		return err
	}
	if string(have[len(names)]) != string(want[len(names)]) {
		return transactionMode(conn.Conn().RemoteAddr())
	}
	for i, name := range names {
		if string(have[i]) != string(want[i]) {
			return asyncflow.Errorf(asyncflow.CodeUnavailable,
				"a new connection to the database has lost its setting %s: it is %q, not %q. "+
					"A pooler in transaction mode does that: connect directly, or through a "+
					"pooler in session mode", name, have[i], want[i])
		}
	}
	return nil
}

func firstRow(ctx context.Context, conn *pgconn.PgConn, sql string) ([][]byte, error) {
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return nil, fmt.Errorf("%d results of a new connection's settings, not one row",
			len(results))
	}
	return results[0].Rows[0], nil
}

// settingError explains the error of settings that Postgres refuses; it names the setting.
func settingError(err error) error {
	if IsPassing(err) {
		return err
	}
	return &asyncflow.Error{Code: asyncflow.CodeUnavailable, Err: err,
		Message: "the database refuses a setting of asyncflow's connections: " + message(err)}
}
