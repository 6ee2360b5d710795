package asyncflow

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonWalk goes through a valid JSON document once, without decoding it. In one that isn't valid it
// comes to the end, too.
type jsonWalk struct {
	doc []byte
	at  int
}

// space skips white space, and returns the byte after it; 0 at the end.
func (w *jsonWalk) space() byte {
	for ; w.at < len(w.doc); w.at++ {
		switch c := w.doc[w.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// enter moves into an array or object, and returns its first byte. Of any other value, it returns
// that, too, and doesn't move.
func (w *jsonWalk) enter() byte {
	c := w.space()
	if c == '[' || c == '{' {
		w.at++
	}
	return c
}

// next moves to the next entry of an array or object. It returns false at its end, and moves on
// behind that.
func (w *jsonWalk) next() bool {
	c := w.space()
	if c == ',' {
		w.at++
		c = w.space()
	}
	switch c {
	case 0:
		return false
	case ']', '}':
		w.at++
		return false
	}
	return true
}

// named skips the name of a field, and reports whether that is a given one.
func (w *jsonWalk) named(name string) bool {
	text := w.skip()
	if w.space() == ':' {
		w.at++
	}
	if len(text) < 2 {
		return false
	}
	if plain := text[1 : len(text)-1]; bytes.IndexByte(plain, '\\') < 0 && utf8.Valid(plain) {
		return string(plain) == name
	}
	var decoded string
	return json.Unmarshal(text, &decoded) == nil && decoded == name
}

// skip skips a value, and returns it.
func (w *jsonWalk) skip() json.RawMessage {
	w.space()
	start, depth := w.at, 0
	for w.at < len(w.doc) {
		switch w.doc[w.at] {
		case '"':
			w.at = StringEnd(w.doc, w.at)
		case '[', '{':
			depth++
			w.at++
		case ']', '}':
			depth--
			w.at++
		default:
			if depth == 0 {
				return w.word()
			}
			w.at++
		}
		if depth <= 0 {
			break
		}
	}
	return w.doc[start:w.at]
}

// word skips a number, true, false or null, and returns it.
func (w *jsonWalk) word() json.RawMessage {
	start := w.at
	for ; w.at < len(w.doc); w.at++ {
		switch w.doc[w.at] {
		case ',', ']', '}', ' ', '\t', '\r', '\n':
			return w.doc[start:w.at]
		}
	}
	return w.doc[start:]
}

// jsonEscape matches an escape of a JSON string. The group is the code unit of \uXXXX.
var jsonEscape = regexp.MustCompile(`(?s)\\(?:u([0-9a-fA-F]{4})|.)`)

// hasLoneSurrogate reports whether a string in a JSON document has half of a surrogate pair, which
// stands for no character. Package json decodes each to U+FFFD.
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
