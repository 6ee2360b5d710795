package httpapi

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
)

// BodyConfig bounds the memory that a node has for the bodies of requests under way, in
// bytes, and as much again for answers that are not sent yet. Bodies of up to 8 KiB don't
// count: they are read into memory of their connection; nor do answers of up to 16 KiB.
// Zero values are the defaults.
type BodyConfig struct {
	Max          int // for all tenants together; 0: 128 MiB
	MaxPerTenant int // for one tenant; 0: a quarter of Max
}

// DefaultMaxBodyMemory is the memory for bodies unless configured, in bytes.
const DefaultMaxBodyMemory = 128 << 20

func (c BodyConfig) withDefaults() BodyConfig {
	c.Max = cmp.Or(c.Max, DefaultMaxBodyMemory)
	c.MaxPerTenant = cmp.Or(c.MaxPerTenant, c.Max/4)
	return c
}

// check refuses memory that has no room for the largest body: it could never be taken.
func (c BodyConfig) check(maxBody int) error {
	if c.MaxPerTenant < maxBody || c.Max < c.MaxPerTenant {
		return asyncflow.InvalidField("Bodies", "has %d bytes for one tenant and %d for all; "+
			"a tenant needs those of one body, %d, and all as many as one", c.MaxPerTenant, c.Max, maxBody)
	}
	return nil
}

// shares divides what a node has of a thing between its tenants: all of them together use as
// much as it has at most, and each its share at most. It is safe for concurrent use.
type shares struct {
	all, each int
	things    string        // what it is, in the plural
	again     time.Duration // after which a refused caller should try again

	mu   sync.Mutex
	used int
	by   map[string]int // of it, by tenant
}

func newShares(all, each int, things string, again time.Duration) *shares {
	return &shares{all: all, each: each, things: things, again: again, by: map[string]int{}}
}

// take takes n for a tenant; "" stands for operators. Over its share it is CodeRateLimited, and
// over what the node has CodeUnavailable.
func (s *shares) take(tenant string, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.by[tenant]+n > s.each:
		return &asyncflow.Error{Code: asyncflow.CodeRateLimited, RetryAfter: s.again,
			Message: fmt.Sprintf("the limit of one tenant on this node is %d %s at once, and %d are in use", s.each, s.things, s.by[tenant])}
	case s.used+n > s.all:
		return &asyncflow.Error{Code: asyncflow.CodeUnavailable, RetryAfter: s.again,
			Message: fmt.Sprintf("the limit of this node is %d %s at once, and %d are in use", s.all, s.things, s.used)}
	}
	s.used += n
	s.by[tenant] += n
	return nil
}

// give gives back what was taken.
func (s *shares) give(tenant string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
	if s.by[tenant] -= n; s.by[tenant] == 0 {
		delete(s.by, tenant)
	}
}

// lend begins a loan that is nothing yet.
func (s *shares) lend(tenant string) loan { return loan{from: s, tenant: tenant} }

// loan is what one call has taken of shares.
type loan struct {
	from   *shares
	tenant string
	n      int
}

// take takes more.
func (l *loan) take(n int) error {
	if err := l.from.take(l.tenant, n); err != nil {
		return err
	}
	l.n += n
	return nil
}

// end gives all of it back.
func (l *loan) end() {
	if l.n > 0 {
		l.from.give(l.tenant, l.n)
		l.n = 0
	}
}
