package httpapi

import (
	"fmt"
	"strings"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/contract"
)

// The bounds of what an answer says of a fault, in bytes.
const (
	maxFaultName = 200  // the name of the field
	maxFaultText = 1000 // what is wrong with it

	// maxFaults is for all of them, as JSON: an answer that says what is wrong is always short.
	maxFaults = shortAnswer / 2
)

// brief returns an error with as much of it as an answer shows: of many faults the first
// contract.MaxFaults, and one more that says there are others.
func brief(e *asyncflow.Error) *asyncflow.Error {
	const limit = contract.MaxFaults
	short := *e
	short.Message = shorten(e.Message, maxFaultText)
	short.Fields = nil
	size := 0
	for _, f := range e.Fields[:min(len(e.Fields), limit)] {
		one := asyncflow.FieldError{
			Field:   shorten(f.Field, maxFaultName),
			Message: shorten(f.Message, maxFaultText),
		}
		if size += encodedSize(one); size > maxFaults {
			break
		}
		short.Fields = append(short.Fields, one)
	}
	if n := len(short.Fields); len(e.Fields) > n {
		short.Fields = append(short.Fields, asyncflow.FieldError{
			Field: "body", Message: fmt.Sprintf("has more faults than these %d", n)})
	}
	return &short
}

// encodedSize returns how long a fault is as JSON, in bytes: an escape is six times as long as
// what it stands for.
func encodedSize(f asyncflow.FieldError) int {
	doc, err := encode(f)
	if err != nil { // it has two strings
		return maxFaults
	}
	return len(doc)
}

// shorten returns the first bytes of a text, up to a limit, and cuts no character in half.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
