package asyncflow

import (
	"regexp"
	"strconv"
	"unicode/utf16"
)

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
