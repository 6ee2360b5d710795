package main

import (
	"log/slog"

	"github.com/asyncflow/asyncflow/store"
)

// databaseFlag names the database of an administrative command; by default that of a running dev
// server.
type databaseFlag struct {
	DatabaseURL string `env:"DATABASE_URL" dev:"database" required:"" placeholder:"URL"`
	rolesFlag   `embed:""`
}

// rolesFlag switches the database roles, which keep tenants apart within Postgres.
type rolesFlag struct {
	DatabaseRoles string `env:"ASYNCFLOW_DATABASE_ROLES" enum:"on,off" default:"on"`
}

func (f rolesFlag) off() bool { return f.DatabaseRoles == "off" }

// option returns the flag as an option of the store.
func (f rolesFlag) option() store.Option { return store.WithoutRoles(f.off()) }

// warn logs that database roles are off.
func (f rolesFlag) warn(log *slog.Logger) {
	if f.off() {
		log.Warn("database roles are off: all tenants' work is done as one database user, and only " +
			"asyncflow itself keeps them apart")
	}
}
