package history

import (
	"encoding/binary"
	"errors"
	"maps"
	"math/bits"
	"slices"
)

// maxPlaces is the most places of a span: the minutes of an hour.
const maxPlaces = 60

// errPacked says that stored points aren't what this program stores.
var errPacked = errors.New("the points of a row of type_history can't be read")

// pack returns a span as it is stored: each column in the order of the fields, as how far its field
// is from the one before it, a byte with its length, a byte with the bits of a number, and the
// numbers, each in that many bits. The column's greatest number says how many bits it takes.
func (s span) pack() []byte {
	var packed []byte
	last := Field(0)
	for _, f := range slices.Sorted(maps.Keys(s)) {
		width := bits.Len64(uint64(slices.Max(s[f])))
		packed = binary.AppendUvarint(packed, uint64(f-last))
		packed = append(packed, byte(len(s[f])), byte(width))
		numbers := make([]byte, (len(s[f])*width+7)/8)
		for i, n := range s[f] {
			putBits(numbers, i*width, width, uint64(n))
		}
		packed = append(packed, numbers...)
		last = f
	}
	return packed
}

// unpack returns a span that was packed.
func unpack(packed []byte) (span, error) {
	s := span{}
	f := Field(0)
	for len(packed) > 0 {
		gap, size := binary.Uvarint(packed)
		if size <= 0 || len(packed) < size+2 {
			return nil, errPacked
		}
		length, width := int(packed[size]), int(packed[size+1])
		packed = packed[size+2:]
		bytes := (length*width + 7) / 8
		if length > maxPlaces || width > 63 || bytes > len(packed) {
			return nil, errPacked
		}
		f += Field(gap)
		s[f] = make([]int64, length)
		for i := range s[f] {
			s[f][i] = int64(getBits(packed, i*width, width))
		}
		packed = packed[bytes:]
	}
	return s, nil
}

// putBits writes the lowest width bits of n to zeroed bits of b, from the bit at on.
func putBits(b []byte, at, width int, n uint64) {
	for width > 0 {
		k := min(8-at%8, width)
		b[at/8] |= byte(n&(1<<k-1)) << (at % 8)
		n >>= k
		at += k
		width -= k
	}
}

// getBits reads what putBits wrote.
func getBits(b []byte, at, width int) (n uint64) {
	for done := 0; done < width; {
		k := min(8-at%8, width-done)
		n |= uint64(b[at/8]>>(at%8)) & (1<<k - 1) << done
		at += k
		done += k
	}
	return n
}
