package store

import (
	"context"
	"errors"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// The words of package postgres for callers of the store.

type (
	// Place is the place of a row in a list by time.
	Place = postgres.Place
	// Server is the address of a server.
	Server = postgres.Server
)

const (
	// PageBytes is about how many bytes of long columns make a page of a list full, however few
	// rows are on the page.
	PageBytes = postgres.PageBytes
)

// IsRefused reports whether Postgres refused a statement for want of a right.
func IsRefused(err error) bool { return postgres.IsRefused(err) }

// IsNotReplicated reports whether an error is that of a commit which may be on no synchronous
// standby.
func IsNotReplicated(err error) bool { return errors.Is(err, postgres.ErrNotReplicated) }

// Direct returns a context for work over direct connections, where others go through a pooler.
func Direct(ctx context.Context) context.Context { return postgres.Direct(ctx) }
