package store

import (
	"context"

	"github.com/asyncflow/asyncflow/store/internal/checkup"
)

// The words of package checkup for callers of the store.

type (
	// Finding is what a check of an installation found.
	Finding = checkup.Finding
	// Certificate returns when the TLS certificate of the host of a URL ends.
	Certificate = checkup.Certificate
)

const (
	// FindingOK finds nothing wrong.
	FindingOK = checkup.LevelOK
	// FindingWarning costs something, or soon will.
	FindingWarning = checkup.LevelWarning
	// FindingProblem keeps tasks from their work, or may lose them.
	FindingProblem = checkup.LevelProblem
)

// Examine looks at the installation in a database, check by check. A check that fails or takes
// over 10 s is a finding of its own. An error means that there was no connection at all. pooled is
// the URL of pooled connections, "" for none. noRoles says that the nodes use no database roles.
func Examine(
	ctx context.Context, url, pooled string, noRoles bool, certificate Certificate,
) ([]Finding, error) {
	return checkup.Examine(ctx, url, pooled, noRoles, certificate)
}
