package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

// manyRate is how many tasks a second are submitted, one by one, each of any of the types.
const manyRate = 200

// manyTypes are task types of several tenants, divided among them.
type manyTypes struct {
	*bench
	tenants []*client
	types   int
}

// beginTypes makes the types in a database of their own, whose node runs while they are
// measured only.
func beginTypes(ctx context.Context, r *rounds) (measure, error) {
	side, err := r.side(ctx, "types", "")
	if err != nil {
		return nil, err
	}
	m := &manyTypes{bench: side, types: 1000}
	tenants := idleTenants
	if r.config.short {
		m.types, tenants = 40, 4
	}
	if err := m.withNode(ctx, func(ctx context.Context) error { return m.make(ctx, tenants) }); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (all figures, err error) {
		err = m.withNode(ctx, func(ctx context.Context) error {
			m.locate()
			// Each type has had a task since the node started, as in use.
			if _, err := m.trickle(ctx, m.types, func(i int) int { return i }); err != nil {
				return err
			}
			all, err = m.trickleAny(ctx, int(manyRate*r.latencyTime.Seconds()))
			return err
		})
		return all, err
	}, nil
}

// make makes the tenants, and the types with their endpoints.
func (m *manyTypes) make(ctx context.Context, tenants int) error {
	token, err := m.adminToken()
	if err != nil {
		return err
	}
	admin := &client{http: m.api.http, base: m.api.base, token: token}
	for i := range tenants {
		name, _ := idleType(i)
		if _, err := admin.call(ctx, http.MethodPost, "/v1/tenants", fmt.Appendf(nil, `{"slug":%q}`, name)); err != nil {
			return err
		}
		token, err := m.token(name)
		if err != nil {
			return err
		}
		m.tenants = append(m.tenants, &client{http: m.api.http, token: token})
	}
	m.locate()
	var g errgroup.Group
	g.SetLimit(submitters)
	for n := range m.types {
		g.Go(func() error {
			_, name := idleType(n)
			return m.of(n).register(ctx, name, shape{}.withDefaults(), m.sink.base)
		})
	}
	return g.Wait()
}

// locate has the tenants call the node that runs now.
func (m *manyTypes) locate() {
	for _, c := range m.tenants {
		c.base = m.api.base
	}
}

func (m *manyTypes) of(n int) *client { return m.tenants[n%len(m.tenants)] }

// trickle submits tasks, the type of each by its number, and returns how long they took to
// arrive.
func (m *manyTypes) trickle(ctx context.Context, tasks int, which func(i int) int) (figures, error) {
	first := m.next
	m.next += tasks
	sent, err := trickle(ctx, tasks, manyRate, func(ctx context.Context, i int) error {
		n := which(i)
		_, name := idleType(n)
		return m.of(n).submit(ctx, name, first+i)
	})
	if err != nil {
		return nil, err
	}
	return m.arrivalFigures(ctx, first, sent)
}

// trickleAny submits tasks, each of any type, and adds what they cost.
func (m *manyTypes) trickleAny(ctx context.Context, tasks int) (figures, error) {
	before, err := m.reading(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	all, err := m.trickle(ctx, tasks, func(int) int { return rand.IntN(m.types) })
	if err != nil {
		return nil, err
	}
	elapsed := time.Since(start)
	after, err := m.reading(ctx)
	all = append(all, writtenFigures(tasks, before.written, after.written)...)
	return append(all, cpuFigures(tasks, elapsed, after.usage.since(before.usage))...), err
}
