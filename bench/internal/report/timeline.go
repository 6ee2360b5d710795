package report

import (
	"fmt"
	"io"

	"github.com/asyncflow/asyncflow/bench/internal/machine"
)

// Timeline is figures by time.
type Timeline struct {
	Machine machine.Machine `json:"machine"`
	Notes   []string        `json:"notes"`
	Seconds []float64       `json:"seconds"`
	Rows    []Row           `json:"rows"`
}

// Add adds the figures of a moment. The figures are the same in every moment.
func (t *Timeline) Add(seconds float64, moment Figures) {
	t.Seconds = append(t.Seconds, seconds)
	for i, f := range moment {
		if i == len(t.Rows) {
			t.Rows = append(t.Rows, Row{Key: f.Key, Name: f.Name, Unit: f.Unit})
		}
		t.Rows[i].Values = append(t.Rows[i].Values, f.Value)
	}
}

// mostLines bounds the table that is printed; the JSON and the plots show all moments.
const mostLines = 40

// WriteMarkdown writes a table with a line for each moment, or for every few.
func (t *Timeline) WriteMarkdown(w io.Writer) {
	fmt.Fprintf(w, "%s.\n", t.Machine)
	for _, note := range t.Notes {
		fmt.Fprintf(w, "%s\n", note)
	}
	fmt.Fprint(w, "\n| s |")
	for _, r := range t.Rows {
		fmt.Fprintf(w, " %s, %s |", r.Name, r.Unit)
	}
	fmt.Fprint(w, "\n|---:|")
	for range t.Rows {
		fmt.Fprint(w, "---:|")
	}
	fmt.Fprintln(w)
	every := (len(t.Seconds) + mostLines - 1) / mostLines
	for i := 0; i < len(t.Seconds); i += every {
		fmt.Fprintf(w, "| %.0f |", t.Seconds[i])
		for _, r := range t.Rows {
			fmt.Fprintf(w, " %s |", Number(r.Values[i]))
		}
		fmt.Fprintln(w)
	}
}
