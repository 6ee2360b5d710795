package catalog

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

const (
	// nodeEvery is how often a node writes its row. It counts as gone after nodeGone without
	// a write.
	nodeEvery = 5 * time.Second
	nodeGone  = 3 * nodeEvery
)

// Node is a node that writes, or wrote, its row.
type Node struct {
	ID, Roles, Version string // roles separated by commas
	Started, Seen      time.Time
	Gone               bool // it hasn't written its row for too long
}

// ListNodes returns the running nodes, and nodes that fell silent within the last day, by the time
// of their start.
func (s *Core) ListNodes(ctx context.Context) ([]Node, error) {
	rows, _ := s.Base.Query(ctx,
		`SELECT id, roles, version, started_at, seen_at FROM asyncflow.nodes
			ORDER BY started_at, id`)
	limit := s.Clock.Now().Add(-nodeGone)
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n Node, err error) {
		err = row.Scan(&n.ID, &n.Roles, &n.Version, &n.Started, &n.Seen)
		n.Gone = !n.Seen.After(limit)
		return n, err
	})
	return all, postgres.Wrap(err, "ListNodes")
}

// Nodes returns how many nodes write their row, including this one: at least 1.
func (s *Core) Nodes() int { return max(int(s.nodes.Load()), 1) }

// APINodes returns how many nodes take requests: at least 1.
func (s *Core) APINodes() int { return max(int(s.apis.Load()), 1) }

// Dispatchers returns how many nodes lease tasks, at least 1.
func (s *Core) Dispatchers() int { return max(int(s.dispatchers.Load()), 1) }

// OwnShare returns the part of its new tasks that this node should begin itself: less than 1 if it
// takes requests beside nodes that only dispatch.
func (s *Core) OwnShare() float64 {
	all, only := s.dispatchers.Load(), s.onlyDispatch.Load()
	if only >= all {
		return 1
	}
	return float64(all-only) / float64(all)
}

// joinTime is how long a new node has no share of what the nodes that lease tasks divide among
// them: until then the other nodes may not know of it.
const joinTime = nodeEvery + time.Second

// Joining reports whether this node has no share yet of what the nodes that lease tasks divide
// among them. A node that finds no other has everything at once.
func (s *Core) Joining() bool {
	at := s.joined.Load()
	return at == nil || time.Now().Before(*at)
}

// beat writes this node's row and counts the nodes.
func (s *Core) beat(ctx context.Context) error {
	now := s.Clock.Now()
	_, err := s.DB("").Exec(ctx, `
		INSERT INTO asyncflow.nodes (id, roles, version, started_at, seen_at, knows)
		VALUES ($1, $2, $3, $4, $4, $5)
		ON CONFLICT (id) DO UPDATE SET seen_at = $4, knows = $5`, s.Config.Node, s.Config.Roles,
		s.Config.Build, now, asyncflow.Capabilities)
	if err != nil {
		return postgres.Wrap(err, "beat")
	}
	var n, apis, dispatchers, onlyDispatch int32
	var unknown unknownCapabilities
	err = s.Base.QueryRow(ctx,
		`SELECT count(*), count(*) FILTER (WHERE 'api' = ANY (string_to_array(roles, ','))),
		  count(*) FILTER (WHERE 'dispatcher' = ANY (string_to_array(roles, ','))),
		  count(*) FILTER (WHERE 'dispatcher' = ANY (string_to_array(roles, ','))
		    AND 'api' <> ALL (string_to_array(roles, ','))),
		  (`+unknownSQL+`)
		FROM asyncflow.nodes WHERE seen_at > $1`, now.Add(-nodeGone),
		asyncflow.Capabilities).Scan(&n, &apis, &dispatchers, &onlyDispatch, &unknown)
	if err != nil {
		return postgres.Wrap(err, "beat")
	}
	s.unknown.Store(&unknown)
	s.nodes.Store(n)
	s.apis.Store(apis)
	s.dispatchers.Store(dispatchers)
	if slices.Contains(strings.Split(s.Config.Roles, ","), "api") { // else it shares nothing
		s.onlyDispatch.Store(onlyDispatch)
	}
	if s.joined.Load() == nil {
		at := time.Now()
		if dispatchers > 1 {
			at = at.Add(joinTime)
		}
		s.joined.Store(&at)
	}
	return nil
}

// leave deletes this node's row.
func (s *Core) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := s.DB("").Exec(ctx, `DELETE FROM asyncflow.nodes WHERE id = $1`,
		s.Config.Node); err != nil {
		s.Log.Debug("could not delete this node's row", "error", err)
	}
}

// nodesKept is how long the row of a node that is gone is kept.
const nodesKept = 24 * time.Hour

// DryRunForgetNodes counts the nodes that have been silent for a day.
func (s *Core) DryRunForgetNodes(ctx context.Context) (int, error) {
	return postgres.CountRows(ctx, s.Base,
		`SELECT count(*) FROM asyncflow.nodes WHERE seen_at < $1`, s.Clock.Now().Add(-nodesKept))
}

// ForgetNodes deletes the rows of nodes that have been silent for a day, and
// returns how many there were.
func (s *Core) ForgetNodes(ctx context.Context) (int, error) {
	tag, err := s.DB("").Exec(ctx, `DELETE FROM asyncflow.nodes WHERE seen_at < $1`,
		s.Clock.Now().Add(-nodesKept))
	return int(tag.RowsAffected()), postgres.Wrap(err, "ForgetNodes")
}
