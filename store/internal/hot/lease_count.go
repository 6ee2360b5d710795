package hot

import (
	"sync/atomic"

	"github.com/asyncflow/asyncflow/store/internal/config"
)

// countLeased counts leased rows of a type for Vacuum.
func (s *Path) countLeased(t *config.Type, rows int) {
	key := t.Set().Key()
	n, ok := s.leasedRows.Load(key)
	if !ok {
		n, _ = s.leasedRows.LoadOrStore(key, new(atomic.Int64))
	}
	n.(*atomic.Int64).Add(int64(rows))
}
