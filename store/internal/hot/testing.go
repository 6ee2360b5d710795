package hot

import (
	"time"

	"github.com/asyncflow/asyncflow/store/internal/catalog"
)

// Only the tests of package store use what stands here.

// ForgetNumbers has the next submits take new blocks of numbers.
func ForgetNumbers(p *Path) { p.numbers.forget(func(catalog.TypeKey) bool { return true }) }

// KeepNumbers has the block of numbers of a type last.
func KeepNumbers(p *Path, key catalog.TypeKey) {
	b := p.numbers.block(key)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken = time.Now().Add(time.Hour)
}
