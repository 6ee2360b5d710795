package main

import (
	"fmt"
	"strings"
)

// figure is one measured value.
type figure struct {
	key   string // in JSON
	name  string // in the table
	unit  string
	value float64
}

type figures []figure

// find returns the value of a key.
func (f figures) find(key string) (float64, bool) {
	for _, one := range f {
		if one.key == key {
			return one.value, true
		}
	}
	return 0, false
}

// meanOf returns the means of several measurements of the same: harmonic ones of what is done
// a second, as if they were one.
func meanOf(all []figures) (means figures) {
	for i, f := range all[0] {
		sum, inverse := 0.0, 0.0
		for _, one := range all {
			sum, inverse = sum+one[i].value, inverse+1/one[i].value
		}
		f.value = sum / float64(len(all))
		if strings.HasSuffix(f.unit, "/s") {
			f.value = float64(len(all)) / inverse
		}
		means = append(means, f)
	}
	return means
}

// check refuses rates of zero: nothing was done.
func (f figures) check() error {
	for _, one := range f {
		if strings.HasSuffix(one.unit, "/s") && !(one.value > 0) {
			return fmt.Errorf("broken: %s is %g %s", one.name, one.value, one.unit)
		}
	}
	return nil
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
