package document

import (
	"fmt"
	"strings"
)

// maxValues bounds the values of a document: each takes a hundred times the memory of its text.
const maxValues = 500_000

// checkValues returns an error if a document has more values than can be read into memory.
func checkValues(raw []byte, isJSON bool) error {
	if n := countValues(raw, isJSON); n > maxValues {
		return fmt.Errorf("it has about %d values; the limit is %d", n, maxValues)
	}
	return nil
}

// countValues estimates how many values a document has, by what stands before each: brackets and
// commas, and in YAML the signs that a blank follows. In texts of JSON nothing counts; where a text
// of YAML ends is not known before it is read.
func countValues(raw []byte, isJSON bool) int {
	n := 1
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"' && isJSON:
			i = endOfText(raw, i)
		case c == '[' || c == '{' || c == ',':
			n++
		case (c == '-' || c == ':' || c == '?') && !isJSON && blankAt(raw, i+1):
			n++
		}
	}
	return n
}

// endOfText returns where a text of JSON ends.
func endOfText(raw []byte, start int) int {
	for i := start + 1; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(raw)
}

func blankAt(raw []byte, i int) bool {
	return i >= len(raw) || strings.IndexByte(" \t\r\n", raw[i]) >= 0
}
