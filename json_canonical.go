package asyncflow

import (
	"bytes"
	"encoding/json"
)

// canonical returns a JSON document in a form in which equal values are equal byte by byte: without
// white space, and with the fields of objects in order. Numbers stay as they are written. nil: it
// isn't JSON, or it contains half of a surrogate pair (RFC 8785, section 3.2.2.2): decoded, all
// halves are the same.
func canonical(doc json.RawMessage) json.RawMessage {
	if hasLoneSurrogate(doc) {
		return nil
	}
	var value any
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	if d.Decode(&value) != nil {
		return nil
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if e.Encode(value) != nil {
		return nil
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// SameJSON reports whether two JSON documents stand for the same value: white space, the order of
// fields and escapes don't matter. Numbers are compared as they are written.
func SameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x := canonical(a)
	return x != nil && bytes.Equal(x, canonical(b))
}
