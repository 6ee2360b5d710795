package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/asyncflow/asyncflow/bench/internal/machine"
)

// Grid is figures by something that is varied, such as the length of the history: a column for
// each value of it.
type Grid struct {
	Machine machine.Machine `json:"machine"`
	By      string          `json:"by"`
	Columns []string        `json:"columns"`
	Rows    []Row           `json:"rows"`
}

// Row is one figure in all columns.
type Row struct {
	Key    string    `json:"key"`
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Values []float64 `json:"values"`
}

// Add adds the figures of the next column.
func (g *Grid) Add(column Figures) {
	for _, f := range column {
		r := g.row(f.Key)
		if r == nil {
			g.Rows = append(g.Rows, Row{Key: f.Key, Name: f.Name, Unit: f.Unit})
			r = &g.Rows[len(g.Rows)-1]
		}
		r.Values = append(r.Values, f.Value)
	}
}

func (g *Grid) row(key string) *Row {
	for i := range g.Rows {
		if g.Rows[i].Key == key {
			return &g.Rows[i]
		}
	}
	return nil
}

// WriteMarkdown writes the grid as a table.
func (g *Grid) WriteMarkdown(w io.Writer) {
	fmt.Fprintf(w, "%s.\n\n| %s | Unit | %s |\n|---|---|%s\n",
		g.Machine, g.By, strings.Join(g.Columns, " | "), strings.Repeat("---:|", len(g.Columns)))
	for _, r := range g.Rows {
		fmt.Fprintf(w, "| %s | %s |", r.Name, r.Unit)
		for _, v := range r.Values {
			fmt.Fprintf(w, " %s |", Number(v))
		}
		fmt.Fprintln(w)
	}
}
