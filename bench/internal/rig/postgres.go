package rig

import (
	"context"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/asyncflow/asyncflow/internal/devpg"
)

const (
	postgresDir  = "pg"   // in the temporary directory
	nodeDatabase = "node" // that the nodes use
)

// StartPostgres starts a server with fsync and synchronous commits, and opens the database of the
// nodes. The data is in a temporary directory that goes away with the rig.
func (r *Rig) StartPostgres(ctx context.Context) (err error) {
	if r.dir, err = newTempDir(); err != nil {
		return err
	}
	r.stops = append(r.stops, func() {
		if err := r.dir.close(); err != nil {
			fmt.Fprintln(os.Stderr, "bench: remove the data:", err)
		}
	})
	settings := map[string]string{
		"shared_buffers":     "512MB",
		"max_wal_size":       "4GB",
		"checkpoint_timeout": "15min",
	}
	maps.Copy(settings, r.Settings)
	r.postgres, err = devpg.Start(ctx, devpg.Config{
		DataDir:  r.dir.join(postgresDir),
		Durable:  true,
		Settings: settings,
		Progress: os.Stderr,
	})
	if err != nil {
		return err
	}
	r.stops = append(r.stops, r.stopPostgres)
	r.database = nodeDatabase
	return r.openDatabase(ctx)
}

// stopPostgresLimit is how long Postgres may take to write everything out.
const stopPostgresLimit = time.Minute

func (r *Rig) stopPostgres() {
	ctx, cancel := context.WithTimeout(context.Background(), stopPostgresLimit)
	defer cancel()
	if err := r.postgres.Stop(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}

// openDatabase makes the database of the nodes, and connects to it.
func (r *Rig) openDatabase(ctx context.Context) (err error) {
	r.secrets = newSecrets()
	url, err := r.MakeDatabase(ctx, r.database)
	if err != nil {
		return err
	}
	if r.DB, err = openDatabase(ctx, url); err != nil {
		return err
	}
	r.stops = append(r.stops, r.DB.close)
	return nil
}

// MakeDatabase makes a database, unless it is there, and returns its URL.
func (r *Rig) MakeDatabase(ctx context.Context, name string) (url string, err error) {
	return r.postgres.URL(name), r.postgres.EnsureDatabase(ctx, name)
}
