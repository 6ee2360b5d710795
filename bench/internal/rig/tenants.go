package rig

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// NewTenant makes a tenant through the API, and returns a client of it. quotas is the document of
// its quotas; "" for the usual ones.
func (r *Rig) NewTenant(ctx context.Context, slug, quotas string) (*Client, error) {
	admin, err := r.Admin(r.API)
	if err != nil {
		return nil, err
	}
	if quotas == "" {
		quotas = "{}"
	}
	body := fmt.Appendf(nil, `{"slug":%q,"quotas":%s}`, slug, quotas)
	if _, err := admin.Call(ctx, http.MethodPost, "/v1/tenants", body); err != nil {
		return nil, err
	}
	return r.ClientOf(slug)
}

// ClientOf returns a client of a tenant at the first node.
func (r *Rig) ClientOf(tenant string) (*Client, error) {
	token, err := r.Token(tenant)
	return &Client{Base: r.API.Base, Token: token, HTTP: r.API.HTTP}, err
}

// ManyTypes are task types, spread evenly over tenants: type n belongs to tenant n modulo their
// number.
type ManyTypes struct {
	rig     *Rig
	tenants []*Client
	count   int
	next    TaskType // only counts the tasks

	TenantTimes, TypeTimes []time.Duration // that it took to make each
}

// manyPrefix begins the names of their tenants.
const manyPrefix = "tenant"

// NewManyTypes makes the tenants.
func (r *Rig) NewManyTypes(ctx context.Context, tenants int) (*ManyTypes, error) {
	m := &ManyTypes{rig: r}
	for i := range tenants {
		start := time.Now()
		c, err := r.NewTenant(ctx, manyPrefix+strconv.Itoa(i), "")
		if err != nil {
			return nil, err
		}
		m.tenants = append(m.tenants, c)
		m.TenantTimes = append(m.TenantTimes, time.Since(start))
	}
	return m, nil
}

// Add makes types until there are count of them, with an endpoint each if they shall get one,
// several at once.
func (m *ManyTypes) Add(ctx context.Context, count int, endpoints bool) error {
	return m.add(ctx, count, endpoints, Submitters)
}

// AddSlowly is Add with one type after the other, so that the time of each can be measured.
func (m *ManyTypes) AddSlowly(ctx context.Context, count int, endpoints bool) error {
	return m.add(ctx, count, endpoints, 1)
}

func (m *ManyTypes) add(ctx context.Context, count int, endpoints bool, atOnce int) error {
	var g errgroup.Group
	g.SetLimit(atOnce)
	first := m.count
	m.count = max(m.count, count)
	m.TypeTimes = append(m.TypeTimes, make([]time.Duration, m.count-first)...)
	for n := first; n < count; n++ {
		g.Go(func() error {
			c, name := m.At(n)
			s, start := Shape{}.withDefaults(), time.Now()
			err := c.putTaskType(ctx, name, s)
			m.TypeTimes[n] = time.Since(start)
			if err == nil && endpoints {
				err = c.addEndpoints(ctx, name, s, m.rig.Worker.Base)
			}
			return err
		})
	}
	return g.Wait()
}

// At returns type n, and a client of its tenant.
func (m *ManyTypes) At(n int) (c *Client, name string) {
	return m.tenants[n%len(m.tenants)], "type" + strconv.Itoa(n)
}

// Locate lets the tenants call the node that runs now.
func (m *ManyTypes) Locate() {
	for _, c := range m.tenants {
		c.Base = m.rig.API.Base
	}
}

// Take reserves numbers for the next tasks of any of the types, and returns the first.
func (m *ManyTypes) Take(tasks int) int { return m.rig.Take(&m.next, tasks) }

// manySlack is how much longer tasks of many types may take: each connection of a node meets each
// type for the first time.
const manySlack = 2 * time.Minute

// Pass lets submit submit that many tasks from number first on, of any of the types, and waits
// until all are done.
func (m *ManyTypes) Pass(
	ctx context.Context, tasks int, submit func(ctx context.Context, first int) error,
) (cost Cost, err error) {
	ctx, cancel := context.WithTimeout(ctx, Patience(tasks)+manySlack)
	defer cancel()
	live, err := m.rig.DB.tablesByTenant(ctx, "ready|lease|wait")
	if err != nil {
		return cost, err
	}
	meter, err := m.rig.StartMeter(ctx)
	if err != nil {
		return cost, err
	}
	if err := submit(ctx, m.Take(tasks)); err != nil {
		return cost, fmt.Errorf("submit: %w", err)
	}
	if err := m.rig.awaitDeliveries(ctx, meter.Before.Deliveries+tasks); err != nil {
		return cost, err
	}
	for _, tables := range live {
		err := Poll(ctx, 5*time.Millisecond, func() (bool, error) {
			found, err := m.rig.DB.anyRow(ctx, tables)
			return !found, err
		})
		if err != nil {
			return cost, fmt.Errorf("waiting for the last task: %w", err)
		}
	}
	if cost, err = meter.Stop(ctx); err != nil {
		return cost, err
	}
	return cost, m.checkFinals(ctx)
}

// checkFinals compares the journals of all tenants with what was submitted.
func (m *ManyTypes) checkFinals(ctx context.Context) error {
	journals, err := m.rig.DB.tablesByTenant(ctx, "journal")
	succeeded, otherwise := 0, 0
	for _, tables := range journals {
		for _, name := range tables {
			s, o, err := m.rig.DB.finalsIn(ctx, name, Range{})
			if err != nil {
				return err
			}
			succeeded, otherwise = succeeded+s, otherwise+o
		}
	}
	if err == nil && (succeeded != m.next.Submitted || otherwise != 0) {
		err = fmt.Errorf("broken: of %d tasks submitted, %d succeeded and %d ended otherwise",
			m.next.Submitted, succeeded, otherwise)
	}
	return err
}
