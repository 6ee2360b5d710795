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
)

// brief returns an error with as much of it as an answer shows: of many faults the first
// contract.MaxFaults, and one more that says there are others.
func brief(e *asyncflow.Error) *asyncflow.Error {
	const limit = contract.MaxFaults
	short := *e
	short.Message = shorten(e.Message, maxFaultText)
	short.Fields = nil
	for _, f := range e.Fields[:min(len(e.Fields), limit)] {
		short.Fields = append(short.Fields, asyncflow.FieldError{
			Field:   shorten(f.Field, maxFaultName),
			Message: shorten(f.Message, maxFaultText),
		})
	}
	if len(e.Fields) > limit {
		short.Fields = append(short.Fields, asyncflow.FieldError{
			Field: "body", Message: fmt.Sprintf("has more faults than these %d", limit)})
	}
	return &short
}

// shorten returns the first bytes of a text, up to a limit, and cuts no character in half.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
