package asyncflow

import "strings"

// joints stand between the segments of a word.
const joints = "-_.:/@+%~&?=#"

// wordPattern returns what stands for a word of an error.
func wordPattern(word string) string {
	bare := strings.TrimRight(word, joints)
	end := word[len(bare):]
	switch {
	case bare == "":
		return word
	case isAddress(bare):
		return "@" + end
	case isUUID(bare) || isNetworkNumber(bare):
		return "#" + end
	}
	return segmentsPattern(bare) + end
}

// isAddress reports whether a word is a URL, an e-mail address, or the name of a host in some
// domain with a port.
func isAddress(word string) bool {
	if strings.Contains(word, "://") {
		return true
	}
	if name, host, found := strings.Cut(word, "@"); found && name != "" && host != "" {
		return true
	}
	host, port, found := strings.Cut(word, ":")
	return found && port != "" && strings.Trim(port, "0123456789") == "" &&
		strings.Count(host, ".") >= 2 && !strings.Contains(host, "/")
}

// isUUID reports whether a word is written as a UUID.
func isUUID(word string) bool {
	if len(word) != 36 {
		return false
	}
	for i := range len(word) {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if word[i] != '-' {
				return false
			}
		} else if !isHex(word[i]) {
			return false
		}
	}
	return true
}

// isNetworkNumber reports whether a word is a time of day, or an address of IPv6 or of hardware.
func isNetworkNumber(word string) bool {
	digit := false
	for i := range len(word) {
		if !isHex(word[i]) && word[i] != ':' && word[i] != '.' {
			return false
		}
		digit = digit || isDigit(word[i])
	}
	return digit && strings.Count(word, ":") >= 2
}

// segmentsPattern returns a word with # for its variable segments. Several of them in a row, such
// as the segments of a date, are one.
func segmentsPattern(word string) string {
	var out strings.Builder
	number := false // the segment before was #
	joint := ""     // what stands between it and this one
	for len(word) > 0 {
		n := strings.IndexAny(word, joints)
		if n < 0 {
			n = len(word)
		}
		pattern := segmentPattern(word[:n])
		if !number || pattern != "#" {
			if pattern != "#" || strings.Trim(joint, "-+") != "" || out.Len() > 0 {
				out.WriteString(joint) // a sign before a number is no part of the pattern
			}
			out.WriteString(pattern)
		}
		number = pattern == "#"
		word = word[n:]
		rest := strings.TrimLeft(word, joints)
		joint = word[:len(word)-len(rest)]
		word = rest
	}
	return out.String()
}

// idLength is how long a segment of hexadecimal digits is at least that counts as an id with a
// digit, and with any.
const (
	idLength     = 8
	longIDLength = 16
)

// segmentPattern returns what stands for a segment of letters and digits: # if it is a number, a
// time, or an id; otherwise # stands for each number in it.
func segmentPattern(s string) string {
	changes, digits, hexes := 0, 0, 0
	for i := range len(s) {
		if isDigit(s[i]) {
			digits++
		}
		if isHex(s[i]) {
			hexes++
		}
		if i > 0 && isDigit(s[i]) != isDigit(s[i-1]) {
			changes++
		}
	}
	switch {
	case len(s) == hexes && len(s) >= longIDLength:
		return "#"
	case digits == 0:
		return s
	case changes == 0 || changes > 1 || len(s) == hexes && len(s) >= idLength:
		return "#"
	case isDigit(s[0]) && len(s)-digits <= 3: // with a unit
		return "#"
	}
	return numbersPattern(s)
}

// numbersPattern returns a text with # for each number.
func numbersPattern(s string) string {
	var out strings.Builder
	for i := range len(s) {
		switch {
		case !isDigit(s[i]):
			out.WriteByte(s[i])
		case i == 0 || !isDigit(s[i-1]):
			out.WriteByte('#')
		}
	}
	return out.String()
}
