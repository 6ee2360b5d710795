package main

import (
	"log/slog"

	"github.com/asyncflow/asyncflow/store"
)

// databaseFlag says which database an administrative command is for.
type databaseFlag struct {
	DatabaseURL string `env:"DATABASE_URL" required:"" placeholder:"URL" help:"Postgres: postgres://user:password@host:5432/database."`
	rolesFlag   `embed:""`
}

// rolesFlag switches the second fence between tenants.
type rolesFlag struct {
	DatabaseRoles string `env:"ASYNCFLOW_DATABASE_ROLES" enum:"on,off" default:"on" help:"Whether each tenant's work runs under its own database role (on, off), so that Postgres itself keeps tenants apart. All nodes of a database must agree."`
}

func (f rolesFlag) off() bool { return f.DatabaseRoles == "off" }

// option is the flag as the store's administration takes it.
func (f rolesFlag) option() store.Option { return store.WithoutRoles(f.off()) }

// warn says loudly that the second fence is off.
func (f rolesFlag) warn(log *slog.Logger) {
	if f.off() {
		log.Warn("database roles are off: all tenants' work is done as one database user, and only " +
			"asyncflow itself keeps them apart")
	}
}
