package history

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"
)

// A span is the minutes of an hour, or the hours of a day, by their place in it. Places without
// points are left out.
type span map[int]Values

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

// at returns the time of a place in a row.
func (u unit) timeOf(row time.Time, place int) time.Time {
	return row.Add(time.Duration(place) * u.point)
}

// raise takes the greater ones of other readings of a place. It reports whether any was.
func (s span) raise(place int, same Values) bool {
	if s[place] == nil {
		s[place] = Values{}
	}
	return s[place].raise(same)
}

// sum returns the values of all places together.
func (s span) sum() Values {
	sum := Values{}
	for _, v := range s {
		sum.fold(v)
	}
	return sum
}

// pack returns a span as it is stored: each place with the length of its values and the values.
func (s span) pack() []byte {
	var packed []byte
	for _, place := range slices.Sorted(maps.Keys(s)) {
		values := s[place].pack()
		packed = binary.AppendUvarint(packed, uint64(place))
		packed = binary.AppendUvarint(packed, uint64(len(values)))
		packed = append(packed, values...)
	}
	return packed
}

// unpackSpan returns a span that was packed.
func unpackSpan(packed []byte) (span, error) {
	s := span{}
	for len(packed) > 0 {
		place, size := binary.Uvarint(packed)
		if size <= 0 {
			return nil, errPacked
		}
		packed = packed[size:]
		length, size := binary.Uvarint(packed)
		if size <= 0 || length > uint64(len(packed)-size) {
			return nil, errPacked
		}
		packed = packed[size:]
		values, err := unpack(packed[:length])
		if err != nil {
			return nil, err
		}
		s[int(place)] = values
		packed = packed[length:]
	}
	return s, nil
}
