package asyncflow

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// JSONWalk goes through a valid JSON document once, without decoding it. In one that isn't valid it
// comes to the end, too.
type JSONWalk struct {
	Doc []byte
	At  int // the byte that comes next
}

// Space skips white space, and returns the byte after it; 0 at the end.
func (w *JSONWalk) Space() byte {
	for ; w.At < len(w.Doc); w.At++ {
		switch c := w.Doc[w.At]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// Enter moves into an array or object, and returns its first byte. Of any other value, it returns
// that, too, and doesn't move.
func (w *JSONWalk) Enter() byte {
	c := w.Space()
	if c == '[' || c == '{' {
		w.At++
	}
	return c
}

// Next moves to the next entry of an array or object. It returns false at its end, and moves on
// behind that.
func (w *JSONWalk) Next() bool {
	c := w.Space()
	if c == ',' {
		w.At++
		c = w.Space()
	}
	switch c {
	case 0:
		return false
	case ']', '}':
		w.At++
		return false
	}
	return true
}

// Name skips the name of a field with its colon, and returns the name as a JSON text.
func (w *JSONWalk) Name() json.RawMessage {
	text := w.Skip()
	if w.Space() == ':' {
		w.At++
	}
	return text
}

// named skips the name of a field, and reports whether that is a given one.
func (w *JSONWalk) named(name string) bool {
	text := w.Name()
	if len(text) < 2 {
		return false
	}
	if plain := text[1 : len(text)-1]; bytes.IndexByte(plain, '\\') < 0 && utf8.Valid(plain) {
		return string(plain) == name
	}
	var decoded string
	return json.Unmarshal(text, &decoded) == nil && decoded == name
}

// Skip skips a value, and returns it.
func (w *JSONWalk) Skip() json.RawMessage {
	w.Space()
	doc := w.Doc
	at := w.At // a local variable is faster than the field
	depth := 0
	for at < len(doc) {
		switch doc[at] {
		case '"':
			at = StringEnd(doc, at)
		case '[', '{':
			depth++
			at++
		case ']', '}':
			depth--
			at++
		default:
			if depth == 0 {
				return w.word()
			}
			at++
			continue
		}
		if depth <= 0 {
			break
		}
	}
	start := w.At
	w.At = at
	return doc[start:at]
}

// word skips a number, true, false or null, and returns it.
func (w *JSONWalk) word() json.RawMessage {
	start := w.At
	for ; w.At < len(w.Doc); w.At++ {
		switch w.Doc[w.At] {
		case ',', ']', '}', ' ', '\t', '\r', '\n':
			return w.Doc[start:w.At]
		}
	}
	return w.Doc[start:]
}

// jsonEscape matches an escape of a JSON string. The group is the code unit of \uXXXX.
var jsonEscape = regexp.MustCompile(`(?s)\\(?:u([0-9a-fA-F]{4})|.)`)

// hasLoneSurrogate reports whether a string in a JSON document contains half of a surrogate pair,
// which stands for no character. Package json decodes each to U+FFFD.
func hasLoneSurrogate(doc []byte) bool {
	var first rune // of a pair, or 0
	end := 0       // of the escape before
	for _, at := range jsonEscape.FindAllSubmatchIndex(doc, -1) {
		var unit rune
		if at[2] >= 0 {
			parsed, _ := strconv.ParseUint(string(doc[at[2]:at[3]]), 16, 16)
			unit = rune(parsed)
		}
		if first != 0 {
			if at[0] != end || utf16.DecodeRune(first, unit) == '\uFFFD' {
				return true
			}
			first = 0
			continue
		}
		if unit >= 0xDC00 && unit <= 0xDFFF {
			return true
		}
		if unit >= 0xD800 && unit <= 0xDBFF {
			first, end = unit, at[1]
		}
	}
	return first != 0
}
