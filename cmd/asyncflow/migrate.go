package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// migrateCmd brings a database's schema up to date.
type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Bring all schemas up to date."`
	Status migrateStatusCmd `cmd:"" help:"Show how far each schema is; fails when one is behind, or roles or grants are missing."`
}

type migrateUpCmd struct{ databaseFlag }

// Run migrates.
func (c *migrateUpCmd) Run(ctx context.Context, g *globals) error {
	all, err := migrate(ctx, c.DatabaseURL, c.option())
	for _, s := range all {
		if s.Version == s.Latest {
			fmt.Fprintf(g.stdout, "%s is at version %d\n", s.Schema, s.Latest)
		} else {
			fmt.Fprintf(g.stdout, "%s went from version %d to %d\n", s.Schema, s.Version, s.Latest)
		}
		for _, statement := range s.Restored {
			fmt.Fprintf(g.stdout, "%s lacked: %s\n", s.Schema, printable(statement))
		}
	}
	if err != nil {
		return err
	}
	gaps, err := store.Gaps(ctx, c.DatabaseURL, c.option())
	printGaps(g.stdout, gaps)
	return err
}

// printGaps prints roles and grants that are missing.
func printGaps(w io.Writer, gaps []store.Gap) {
	for _, gap := range gaps {
		if gap.Tenant != "" {
			gap.Text = gap.Tenant + ": " + gap.Text
		}
		fmt.Fprintf(w, "missing: %s\n  Do: %s\n", printable(gap.Text), gap.Do)
	}
}

// auditedRights bounds the statements in the entry of the audit.
const auditedRights = 100

// migrate brings every schema up to date. If there was something to do, the audit gets an
// entry.
func migrate(
	ctx context.Context, url string, how ...store.Option,
) ([]store.MigrationStatus, error) {
	all, err := store.Migrate(ctx, url, how...)
	b := auditedCommand{url: url, action: "schema.migrate", objectType: "schema",
		detail: map[string]any{}}
	schemas := 0
	var rights []string
	for _, s := range all {
		if s.Version < s.Latest {
			schemas++
		}
		rights = append(rights, s.Restored...)
	}
	if err == nil && schemas == 0 && len(rights) == 0 {
		return all, nil
	}
	b.detail["schemas"] = schemas
	if len(rights) > 0 {
		b.detail["rights"] = len(rights)
		b.detail["statements"] = rights[:min(len(rights), auditedRights)]
	}
	return all, b.do(ctx, func() error { return err })
}

type migrateStatusCmd struct{ databaseFlag }

// Run shows the status.
func (c *migrateStatusCmd) Run(ctx context.Context, g *globals) error {
	all, err := store.Status(ctx, c.DatabaseURL)
	if err != nil {
		return err
	}
	behind := 0
	w := tabwriter.NewWriter(g.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SCHEMA\tVERSION\tLATEST")
	for _, s := range all {
		fmt.Fprintf(w, "%s\t%d\t%d\n", s.Schema, s.Version, s.Latest)
		if s.Version < s.Latest {
			behind++
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	gaps, err := store.Gaps(ctx, c.DatabaseURL, c.option())
	if err != nil {
		return err
	}
	printGaps(g.stdout, gaps)
	switch {
	case behind > 0:
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"%d schemas are behind: run asyncflow migrate up", behind)
	case len(gaps) > 0:
		return asyncflow.Errorf(asyncflow.CodeConflict, "roles or grants are missing")
	}
	return nil
}
