package history

import "time"

// A span has the minutes of an hour, or the hours of a day: for each field a column of its numbers
// by their place. What a column lacks is 0. A column is no longer than the span has places.
type span map[Field][]int64

// unit is what the points of a row stand for, and what the row does.
type unit struct {
	hourly     bool
	point, row time.Duration
}

var (
	minutes = unit{false, time.Minute, time.Hour}
	hours   = unit{true, time.Hour, 24 * time.Hour}
)

// place returns the row that a time belongs to, and its place there.
func (u unit) place(at time.Time) (row time.Time, place int) {
	row = at.Truncate(u.row)
	return row, int(at.Sub(row) / u.point)
}

// timeOf returns the time of a place in a row.
func (u unit) timeOf(row time.Time, place int) time.Time {
	return row.Add(time.Duration(place) * u.point)
}

// raise takes the greater ones of other readings of a place. It reports whether any was.
func (s span) raise(place int, same Values) (raised bool) {
	for f, n := range same {
		if n <= 0 {
			continue
		}
		for len(s[f]) <= place {
			s[f] = append(s[f], 0)
		}
		if n > s[f][place] {
			s[f][place] = n
			raised = true
		}
	}
	return raised
}

// values returns the values of the places that have some.
func (s span) values() map[int]Values {
	all := map[int]Values{}
	for f, column := range s {
		for place, n := range column {
			if n == 0 {
				continue
			}
			if all[place] == nil {
				all[place] = Values{}
			}
			all[place][f] = n
		}
	}
	return all
}

// sum returns the values of all places together.
func (s span) sum() Values {
	sum := Values{}
	for _, v := range s.values() {
		sum.fold(v)
	}
	return sum
}
