package catalog

import (
	"context"
	"strings"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// unknownCapabilities are the capabilities that some running node doesn't know, with the version of
// such a node.
type unknownCapabilities map[asyncflow.Capability]string

// unknownSQL reads unknownCapabilities among $2, of the nodes that wrote their row after $1.
const unknownSQL = `
SELECT coalesce(jsonb_object_agg(c.name, o.version), '{}')
FROM unnest($2::text[]) AS c (name), LATERAL (
  SELECT min(version) AS version FROM asyncflow.nodes
  WHERE seen_at > $1 AND c.name <> ALL (coalesce(knows, '{}'))) o
WHERE o.version IS NOT NULL`

// refuse returns CodeConflict if any of some capabilities is among them.
func (u unknownCapabilities) refuse(needed []asyncflow.Capability) error {
	var names []string
	version := ""
	for _, c := range needed {
		if of, ok := u[c]; ok {
			if len(names) == 0 {
				version = of
			}
			names = append(names, string(c))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return asyncflow.Errorf(asyncflow.CodeConflict, "it uses %s, which a running node of an "+
		"older version (%s) doesn't know: try again when all nodes have the new version",
		strings.Join(names, " and "), version)
}

// CheckKnown refuses capabilities that a running node doesn't know: CodeConflict. It would do the
// wrong thing with tasks that need them.
func (s *Core) CheckKnown(ctx context.Context, needed []asyncflow.Capability) error {
	if len(needed) == 0 {
		return nil
	}
	var unknown unknownCapabilities
	err := s.Base.QueryRow(ctx, unknownSQL, s.Clock.Now().Add(-nodeGone), needed).Scan(&unknown)
	if err != nil {
		return postgres.Wrap(err, "CheckKnown")
	}
	return unknown.refuse(needed)
}

// CheckKnownLately is CheckKnown as of this node's last look at the nodes, some seconds ago. It
// asks nothing, so it is for what comes with each task.
func (s *Core) CheckKnownLately(needed ...asyncflow.Capability) error {
	if unknown := s.unknown.Load(); unknown != nil {
		return unknown.refuse(needed)
	}
	return nil
}
