package httpapi

import (
	"fmt"
	"strings"

	"github.com/asyncflow/asyncflow"
)

// What an answer says of a bad request is bounded: a body of 1 MB can have 400,000 faults.
const (
	// maxFaults is how many fields an error names. One more says that there are others.
	maxFaults = 20
	// maxFaultName bounds the name of a field, maxFaultText what is said of it, in bytes.
	maxFaultName = 200
	maxFaultText = 1000
)

// brief returns an error with no more of it than an answer tells.
func brief(e *asyncflow.Error) *asyncflow.Error {
	short := *e
	short.Message = shorten(e.Message, maxFaultText)
	short.Fields = nil
	for _, f := range e.Fields[:min(len(e.Fields), maxFaults)] {
		short.Fields = append(short.Fields, asyncflow.FieldError{
			Field: shorten(f.Field, maxFaultName), Message: shorten(f.Message, maxFaultText)})
	}
	if len(e.Fields) > maxFaults {
		short.Fields = append(short.Fields, asyncflow.FieldError{
			Field: "body", Message: fmt.Sprintf("has more faults than these %d", maxFaults)})
	}
	return &short
}

// shorten returns the first most bytes of a text, without half a character.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
