package main

import (
	"fmt"
	"io"
	"strings"
)

// grid is figures by something that is varied, such as the length of the history.
type grid struct {
	Machine machine  `json:"machine"`
	By      string   `json:"by"`
	Columns []string `json:"columns"`
	Rows    []row    `json:"rows"`
}

// row is one figure in all columns.
type row struct {
	Key    string    `json:"key"`
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Values []float64 `json:"values"`
}

// add adds the next values of some figures: those of the next column.
func (g *grid) add(column figures) {
	for _, f := range column {
		r := g.row(f.key)
		if r == nil {
			g.Rows = append(g.Rows, row{Key: f.key, Name: f.name, Unit: f.unit})
			r = &g.Rows[len(g.Rows)-1]
		}
		r.Values = append(r.Values, f.value)
	}
}

// row returns the row of a figure, nil when there is none.
func (g *grid) row(key string) *row {
	for i := range g.Rows {
		if g.Rows[i].Key == key {
			return &g.Rows[i]
		}
	}
	return nil
}

func (g *grid) writeMarkdown(w io.Writer) {
	fmt.Fprintf(w, "%s.\n\n| %s | Unit | %s |\n|---|---|%s\n", g.Machine, g.By, strings.Join(g.Columns, " | "), strings.Repeat("---:|", len(g.Columns)))
	for _, r := range g.Rows {
		fmt.Fprintf(w, "| %s | %s |", r.Name, r.Unit)
		for _, v := range r.Values {
			fmt.Fprintf(w, " %s |", number(v))
		}
		fmt.Fprintln(w)
	}
}
