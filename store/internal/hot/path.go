package hot

import (
	"sync"
	"sync/atomic"

	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// Path submits, leases and settles.
type Path struct {
	core          *catalog.Core
	numbers       *numbers
	charges       submitCharges
	latest        latestRows
	leasedRows    sync.Map // of TableSet.Key to *atomic.Int64: see EachLeasedSet
	fair          fairMemory
	unknownLeases sync.Map // of Core.Server, where no node knows some leases: see CheckCommits
}

// Open returns the path over a database.
func Open(core *catalog.Core) *Path {
	p := &Path{core: core}
	p.numbers = newNumbers(p)
	return p
}

// Forget drops what is kept for table sets that are gone.
func Forget(p *Path, gone func(config.TypeKey) bool) {
	p.numbers.forget(gone)
	p.leasedRows.Range(func(key, _ any) bool {
		if gone(key.(config.TypeKey)) {
			p.leasedRows.Delete(key)
		}
		return true
	})
}

// ForgetTypes drops what is kept for task types that are gone.
func ForgetTypes(p *Path, gone func(config.TypeKey) bool) { p.fair.forget(gone) }

// EachLeasedSet calls do with each table set from which this node leased at least a number of rows,
// and begins to count anew. It ends when do returns false.
func EachLeasedSet(p *Path, least int64, do func(config.TypeKey) bool) {
	p.leasedRows.Range(func(key, n any) bool {
		rows := n.(*atomic.Int64)
		if rows.Load() < least {
			return true
		}
		rows.Store(0)
		return do(key.(config.TypeKey))
	})
}
