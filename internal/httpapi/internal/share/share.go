// Package share divides what there is of a resource on a node, such as memory, between its tenants.
package share

import (
	"fmt"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
)

// Pool is a resource with one limit for all tenants together and one for each tenant. It is safe
// for concurrent use.
type Pool struct {
	all, each  int
	units      string        // the plural noun of what is taken
	retryAfter time.Duration // what a refused caller is told

	mu   sync.Mutex
	used int
	by   map[string]int // each tenant's part of used
}

// NewPool returns a full pool: all bounds all tenants together, each bounds
// one tenant. units is the plural noun that the refusals use.
func NewPool(all, each int, units string, retryAfter time.Duration) *Pool {
	return &Pool{all: all, each: each, units: units, retryAfter: retryAfter, by: map[string]int{}}
}

// Take takes n units for a tenant; operators are the tenant "". The error is CodeRateLimited over
// the tenant's limit, and CodeUnavailable over the limit of all.
func (p *Pool) Take(tenant string, n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.by[tenant]+n > p.each:
		return p.refusal(asyncflow.CodeRateLimited, "one tenant on this node", p.each, p.by[tenant])
	case p.used+n > p.all:
		return p.refusal(asyncflow.CodeUnavailable, "this node", p.all, p.used)
	}
	p.used += n
	p.by[tenant] += n
	return nil
}

func (p *Pool) refusal(code asyncflow.Code, of string, limit, used int) error {
	return &asyncflow.Error{Code: code, RetryAfter: p.retryAfter, Message: fmt.Sprintf(
		"the limit of %s is %d %s at once, and %d are in use", of, limit, p.units, used)}
}

// Give gives back what Take took.
func (p *Pool) Give(tenant string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= n
	if p.by[tenant] -= n; p.by[tenant] == 0 {
		delete(p.by, tenant)
	}
}

// InUse returns how many units all tenants together took.
func (p *Pool) InUse() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// Lend returns an empty loan.
func (p *Pool) Lend(tenant string) Loan { return Loan{pool: p, tenant: tenant} }

// Loan is what one call took from a pool.
type Loan struct {
	pool   *Pool
	tenant string
	n      int
}

// Take adds n units to the loan.
func (l *Loan) Take(n int) error {
	if err := l.pool.Take(l.tenant, n); err != nil {
		return err
	}
	l.n += n
	return nil
}

// TakeAnyway adds n units to the loan, even over the limits, for what is in use already. Until as
// much is given back, Take refuses others.
func (l *Loan) TakeAnyway(n int) {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	l.pool.used += n
	l.pool.by[l.tenant] += n
	l.n += n
}

// Give gives n units of the loan back.
func (l *Loan) Give(n int) {
	l.pool.Give(l.tenant, n)
	l.n -= n
}

// Size returns the number of units of the loan.
func (l *Loan) Size() int { return l.n }

// Move returns the whole loan as one of its own, and leaves nothing in l.
func (l *Loan) Move() Loan {
	moved := *l
	l.n = 0
	return moved
}

// End gives the whole loan back.
func (l *Loan) End() {
	if l.n > 0 {
		l.pool.Give(l.tenant, l.n)
		l.n = 0
	}
}
