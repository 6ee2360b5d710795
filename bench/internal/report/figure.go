// Package report holds measured figures and prints them: as Markdown tables, JSON, and plots.
package report

import (
	"fmt"
	"strings"
)

// Figure is one measured value.
type Figure struct {
	Key   string  `json:"key"`
	Name  string  `json:"name"` // in tables
	Unit  string  `json:"unit"`
	Value float64 `json:"value"`
}

// NewFigure returns a figure.
func NewFigure(key, name, unit string, value float64) Figure {
	return Figure{key, name, unit, value}
}

// Figures are those of one measurement, in the order in which they are printed.
type Figures []Figure

// Add appends a figure.
func (f *Figures) Add(key, name, unit string, value float64) {
	*f = append(*f, NewFigure(key, name, unit, value))
}

// Find returns the value of a key.
func (f Figures) Find(key string) (float64, bool) {
	for _, one := range f {
		if one.Key == key {
			return one.Value, true
		}
	}
	return 0, false
}

// Check refuses a rate of zero: nothing was done.
func (f Figures) Check() error {
	for _, one := range f {
		if one.isRate() && !(one.Value > 0) {
			return fmt.Errorf("broken: %s is %g %s", one.Name, one.Value, one.Unit)
		}
	}
	return nil
}

func (f Figure) isRate() bool { return strings.HasSuffix(f.Unit, "/s") }

// MeanOf returns the means of several measurements of the same figures. That of a rate is the
// harmonic mean, as if they were one measurement.
func MeanOf(all []Figures) (means Figures) {
	for i, f := range all[0] {
		sum, inverse := 0.0, 0.0
		for _, one := range all {
			sum, inverse = sum+one[i].Value, inverse+1/one[i].Value
		}
		f.Value = sum / float64(len(all))
		if f.isRate() {
			f.Value = float64(len(all)) / inverse
		}
		means = append(means, f)
	}
	return means
}

// Number writes a value with as many digits as it is worth.
func Number(v float64) string {
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
