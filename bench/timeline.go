package main

import (
	"fmt"
	"io"
)

// timeline is figures by time.
type timeline struct {
	Machine machine   `json:"machine"`
	Notes   []string  `json:"notes"`
	Seconds []float64 `json:"seconds"`
	Rows    []row     `json:"rows"`
}

// add adds the figures of a moment, which are the same ones at every moment.
func (t *timeline) add(seconds float64, moment figures) {
	t.Seconds = append(t.Seconds, seconds)
	for i, f := range moment {
		if i == len(t.Rows) {
			t.Rows = append(t.Rows, row{Key: f.key, Name: f.name, Unit: f.unit})
		}
		t.Rows[i].Values = append(t.Rows[i].Values, f.value)
	}
}

// mostLines bounds the table that is printed; the JSON and the plots have all.
const mostLines = 40

// writeMarkdown writes a table with a line for each moment, or for every few.
func (t *timeline) writeMarkdown(w io.Writer) {
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
			fmt.Fprintf(w, " %s |", number(r.Values[i]))
		}
		fmt.Fprintln(w)
	}
}
