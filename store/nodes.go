package store

import (
	"context"
	"time"
)

// Nodes returns how many nodes write their row, this one included: at least 1.
func (s *Store) Nodes() int { return max(int(s.nodes.Load()), 1) }

// beat writes this node's row and counts the nodes.
func (s *Store) beat(ctx context.Context) error {
	now := s.Clock.Now()
	_, err := s.pool.Exec(ctx, `
		INSERT INTO asyncflow.nodes (id, roles, version, started_at, seen_at) VALUES ($1, $2, $3, $4, $4)
		ON CONFLICT (id) DO UPDATE SET seen_at = $4`, s.cfg.Node, s.cfg.Roles, s.cfg.Build, now)
	if err != nil {
		return wrap(err, "beat")
	}
	var n int32
	err = s.pool.QueryRow(ctx, `SELECT count(*) FROM asyncflow.nodes WHERE seen_at > $1`, now.Add(-nodeGone)).Scan(&n)
	if err != nil {
		return wrap(err, "beat")
	}
	s.nodes.Store(n)
	return nil
}

// leave deletes this node's row.
func (s *Store) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := s.pool.Exec(ctx, `DELETE FROM asyncflow.nodes WHERE id = $1`, s.cfg.Node); err != nil {
		s.log.Debug("could not delete this node's row", "error", err)
	}
}

// ForgetNodes deletes the rows of nodes that have been silent for a day, and
// returns how many there were.
func (s *Store) ForgetNodes(ctx context.Context) (int, error) {
	tag, err := s.pool.Exec(ctx, `DELETE FROM asyncflow.nodes WHERE seen_at < $1`, s.Clock.Now().Add(-24*time.Hour))
	return int(tag.RowsAffected()), wrap(err, "ForgetNodes")
}
