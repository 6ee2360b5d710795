package hot

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Path submits, leases and settles.
type Path struct {
	core          *catalog.Core
	numbers       *numbers
	charges       submitCharges
	latest        latestRows
	leasedRows    sync.Map // of TableSet.Key to *atomic.Int64: see EachLeasedSet
	distributed   bool     // tenants are on several servers, see Distributed
	fair          fairMemory
	unknownLeases atomic.Bool // leases may be committed that no node knows, see CheckCommits
}

// Open returns the path over a database.
func Open(ctx context.Context, core *catalog.Core) (*Path, error) {
	p := &Path{core: core}
	p.numbers = newNumbers(p)
	err := core.Base.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_extension
		WHERE extname = 'citus')`).
		Scan(&p.distributed)
	return p, postgres.Wrap(err, "store.Open")
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
