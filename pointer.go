package asyncflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Pointer is a JSON pointer (RFC 6901), such as /pages. The pointer to a whole document is the
// empty string in JSON; here it is WholeContext, so that it differs from none.
type Pointer string

// WholeContext points to the context of a task itself. No text in JSON can be that.
const WholeContext Pointer = "\xff"

// MarshalText writes the pointer as it is in JSON.
func (p Pointer) MarshalText() ([]byte, error) {
	if p == WholeContext {
		p = ""
	}
	return []byte(p), nil
}

// UnmarshalText reads what MarshalText writes.
func (p *Pointer) UnmarshalText(b []byte) error {
	if *p = Pointer(b); len(b) == 0 {
		*p = WholeContext
	}
	return nil
}

// partIn returns the part of a document at the pointer, and names it.
func (p Pointer) partIn(doc json.RawMessage) (part json.RawMessage, name string, err error) {
	if p == WholeContext {
		return doc, "the context", nil
	}
	part, err = PointTo(doc, string(p))
	return part, string(p), err
}

func checkPointer(field, pointer string, out *problems) {
	switch {
	case pointer == "":
	case len(pointer) > MaxPointer:
		out.add(field, "is %d bytes long; the limit is %d", len(pointer), MaxPointer)
	case pointer[0] != '/':
		out.add(field, "is %q; a JSON pointer begins with /, such as /pages", pointer)
	}
}

// PointTo returns the part of a valid JSON document at a pointer (RFC 6901), byte by byte. Of
// fields with the same name the last one counts.
func PointTo(doc json.RawMessage, pointer string) (json.RawMessage, error) {
	if pointer == "" {
		return doc, nil
	}
	steps := strings.Split(pointer[1:], "/")
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for i := range steps {
		steps[i] = unescape.Replace(steps[i])
	}
	p := pointerWalk{JSONWalk{Doc: doc}, pointer, steps}
	return p.to(0)
}

// pointerWalk follows a pointer in one pass over the document.
type pointerWalk struct {
	JSONWalk
	pointer string
	steps   []string
}

// to returns what the steps lead to from the value at which the walk is, and moves on behind that
// value.
func (p *pointerWalk) to(step int) (part json.RawMessage, err error) {
	if step == len(p.steps) {
		return p.Skip(), nil
	}
	switch name := p.steps[step]; p.Enter() {
	case '{':
		err = fmt.Errorf("%s: the context has no %q there", p.pointer, name)
		for p.Next() {
			if p.named(name) {
				part, err = p.to(step + 1)
			} else {
				p.Skip()
			}
		}
	case '[':
		index, bad := strconv.Atoi(name)
		if bad != nil || strconv.Itoa(index) != name { // such as 01
			index = -1
		}
		count := 0
		for ; p.Next(); count++ {
			if count == index {
				part, err = p.to(step + 1)
			} else {
				p.Skip()
			}
		}
		if index < 0 || index >= count {
			err = fmt.Errorf("%s: an array of %d has no entry %q", p.pointer, count, name)
		}
	default:
		err = fmt.Errorf("%s: step %d is in %s", p.pointer, step+1, kindOf(p.Skip()))
	}
	return part, err
}

func firstByte(doc []byte) byte {
	if doc = bytes.TrimLeft(doc, " \t\r\n"); len(doc) > 0 {
		return doc[0]
	}
	return 0
}

// kindOf names the kind of a JSON value.
func kindOf(doc []byte) string {
	switch firstByte(doc) {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	case 0:
		return "nothing"
	}
	return "a number"
}
