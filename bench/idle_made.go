package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// madeTypes makes tenants and task types, one after the other, and counts the relations that they
// take in the catalog of Postgres.
type madeTypes struct {
	rig                            *rig.Rig
	types                          *rig.ManyTypes
	tenantRelations, typeRelations int
}

// upTo makes the tenants, unless they are there, and types until there are as many. The tables that
// types share are made with the first type of a tenant: they count as the tenant's.
func (m *madeTypes) upTo(ctx context.Context, types, tenants int) (err error) {
	if m.types == nil {
		err = m.counting(ctx, &m.tenantRelations, func() (err error) {
			if m.types, err = m.rig.NewManyTypes(ctx, tenants); err != nil {
				return err
			}
			m.types.Locate()
			return m.types.AddSlowly(ctx, min(tenants, types), false)
		})
		if err != nil {
			return err
		}
	}
	m.types.Locate()
	return m.counting(ctx, &m.typeRelations, func() error {
		return m.types.AddSlowly(ctx, types, false)
	})
}

// counting adds the number of relations that do makes.
func (m *madeTypes) counting(ctx context.Context, n *int, do func() error) error {
	before, err := m.rig.DB.Relations(ctx)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	after, err := m.rig.DB.Relations(ctx)
	*n += after - before
	return err
}

// figures are how long it took to make each tenant and type, and what each takes in the catalog.
func (m *madeTypes) figures() (all report.Figures) {
	for _, of := range []struct {
		key, name string
		took      []time.Duration
		relations float64
	}{
		{"tenant", "a tenant", m.types.TenantTimes,
			share(m.tenantRelations, len(m.types.TenantTimes))},
		{"type", "a type", m.types.TypeTimes,
			share(m.typeRelations, len(m.types.TypeTimes)-len(m.types.TenantTimes))},
	} {
		if len(of.took) == 0 {
			continue
		}
		took := callTimes(of.took)
		all.Add(of.key+"_mean", "Making "+of.name+", mean", "ms", took.mean())
		all.Add(of.key+"_p99", "Making "+of.name+", p99", "ms", took.percentile(99))
		all.Add(of.key+"_relations", "Relations of "+of.name, "relations", of.relations)
	}
	return all
}

// share returns the share of each of n; 0 if there are none.
func share(all, n int) float64 {
	if n <= 0 {
		return 0
	}
	return float64(all) / float64(n)
}

// idleResult is a column for each number of types.
type idleResult struct {
	report.Grid
	Tenants int            `json:"tenants"`
	Made    report.Figures `json:"made"`
	Last    report.Figures `json:"-"` // of the last column
}

// writeMarkdown writes all figures, and the targets beside those of the last column.
func (r *idleResult) writeMarkdown(w io.Writer) {
	r.WriteMarkdown(w)
	fmt.Fprintf(w, "\n| Made one after the other | Unit | Value |\n|---|---|---:|\n")
	for _, f := range r.Made {
		fmt.Fprintf(w, "| %s | %s | %s |\n", f.Name, f.Unit, report.Number(f.Value))
	}
	fmt.Fprintf(w, "\n| %s task types in %s tenants | Target for 10,000 in 1,000 | Value | Met |\n"+
		"|---|---:|---:|---|\n", r.Columns[len(r.Columns)-1], report.Number(float64(r.Tenants)))
	figures := append(r.Last, r.Made...)
	for _, t := range idleTargets {
		if value, ok := figures.Find(t.key); ok {
			fmt.Fprintf(w, "| %s | %s | **%s** | %s |\n",
				t.title, t, report.Number(value), t.met(value))
		}
	}
}
