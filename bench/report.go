package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// report is the result of a run.
type report struct {
	Machine machine  `json:"machine"`
	Tasks   int      `json:"tasks"` // of a round
	Figures []series `json:"figures"`
}

// series is one figure in all rounds.
type series struct {
	Key    string    `json:"key"`
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Rounds []float64 `json:"rounds"`
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
}

// add adds the figures of a round, which are the same ones in every round.
func (r *report) add(round figures) {
	for i, f := range round {
		if i == len(r.Figures) {
			r.Figures = append(r.Figures, series{Key: f.key, Name: f.name, Unit: f.unit})
		}
		s := &r.Figures[i]
		s.Rounds = append(s.Rounds, f.value)
		s.Median, s.Min, s.Max = median(s.Rounds), slices.Min(s.Rounds), slices.Max(s.Rounds)
	}
}

// writeJSON writes what was measured to a file, unless its name is "".
func writeJSON(file string, measured any) error {
	if file == "" {
		return nil
	}
	doc, err := json.MarshalIndent(measured, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(doc, '\n'), 0o644)
}

func (r *report) writeMarkdown(w io.Writer) {
	fmt.Fprintf(w, "%s. Rounds of %d tasks with %d-byte contexts.\n\n", r.Machine, r.Tasks, contextBytes)
	rounds := len(r.Figures[0].Rounds)
	fmt.Fprint(w, "| Figure | Unit |")
	for n := range rounds {
		fmt.Fprintf(w, " %d |", n+1)
	}
	fmt.Fprintf(w, " Median | Min–max |\n|---|---|%s---:|---:|\n", strings.Repeat("---:|", rounds))
	for _, s := range r.Figures {
		fmt.Fprintf(w, "| %s | %s |", s.Name, s.Unit)
		for _, v := range s.Rounds {
			fmt.Fprintf(w, " %s |", number(v))
		}
		fmt.Fprintf(w, " **%s** | %s–%s |\n", number(s.Median), number(s.Min), number(s.Max))
	}
}

// number writes a value with as many digits as it is worth.
func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	case v < 1000:
		return fmt.Sprintf("%.0f", v)
	}
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
