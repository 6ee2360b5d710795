package rig

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"golang.org/x/sync/errgroup"
)

// NewTenant makes a tenant through the API, and returns a client of it. quotas is the document of
// its quotas; "" for the usual ones.
func (r *Rig) NewTenant(ctx context.Context, slug, quotas string) (*Client, error) {
	token, err := r.adminToken()
	if err != nil {
		return nil, err
	}
	admin := &Client{Base: r.API.Base, Token: token, HTTP: r.API.HTTP}
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
}

// NewManyTypes makes the tenants.
func (r *Rig) NewManyTypes(ctx context.Context, tenants int) (*ManyTypes, error) {
	m := &ManyTypes{rig: r}
	for i := range tenants {
		c, err := r.NewTenant(ctx, "tenant"+strconv.Itoa(i), "")
		if err != nil {
			return nil, err
		}
		m.tenants = append(m.tenants, c)
	}
	return m, nil
}

// Add makes types until there are count of them, with an endpoint each if they shall have one.
func (m *ManyTypes) Add(ctx context.Context, count int, endpoints bool) error {
	var g errgroup.Group
	g.SetLimit(Submitters)
	for n := m.count; n < count; n++ {
		g.Go(func() error {
			c, name := m.At(n)
			s := Shape{}.withDefaults()
			err := c.putTaskType(ctx, name, s)
			if err == nil && endpoints {
				err = c.addEndpoints(ctx, name, s, m.rig.Worker.Base)
			}
			return err
		})
	}
	m.count = max(m.count, count)
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
