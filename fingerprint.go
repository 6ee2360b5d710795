package asyncflow

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	// FingerprintText is how many bytes of an error a fingerprint reads.
	FingerprintText = 1000
	// MaxPattern is the length in bytes of the longest pattern of an error.
	MaxPattern = 300
)

var fingerprint = regexp.MustCompile(`^[0-9a-f]{16}$`)

// IsFingerprint reports whether a text can be the fingerprint of an error.
func IsFingerprint(text string) bool { return fingerprint.MatchString(text) }

// Fingerprint returns a short id that errors of one kind share: their ErrorCode and their pattern
// are the same. It never changes for an error, so that a list finds what a group counted.
func Fingerprint(code, pattern string) string {
	sum := sha256.Sum256([]byte(code + "\n" + pattern))
	return hex.EncodeToString(sum[:8])
}

// ErrorPattern returns an error without what differs between errors of one kind: # stands for
// numbers, times, UUIDs and other ids, … for quoted parts, @ for URLs and addresses. It reads
// FingerprintText bytes of the error, once from left to right, and returns MaxPattern at most.
func ErrorPattern(text string) string {
	p := patternWriter{in: text}
	if len(text) > FingerprintText {
		p.in = firstBytes(text, FingerprintText)
		p.cut = true
	}
	for p.at < len(p.in) && p.out.Len() <= MaxPattern {
		p.next()
	}
	return strings.TrimSpace(firstBytes(p.out.String(), MaxPattern))
}

// firstBytes returns the beginning of a text. It splits no character.
func firstBytes(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// patternWriter goes through an error once.
type patternWriter struct {
	in  string
	at  int  // what is read next
	cut bool // in is the beginning of a longer text
	out strings.Builder

	document bool      // it is in a JSON document: names and texts are quoted there
	unclosed [256]bool // of a quote: none follows that could end a quoted part
}

// next reads a word, a quoted part, a space or another character.
func (p *patternWriter) next() {
	c := p.in[p.at]
	switch {
	case c <= ' ' || c == 0x7f:
		p.space()
	case isQuote(c) && !p.document && p.quoted(c):
	case isWordByte(c):
		p.word()
	default:
		p.document = p.document || strings.HasPrefix(p.in[p.at:], `{"`)
		p.out.WriteByte(c)
		p.at++
	}
}

// space writes one space for all that follow each other.
func (p *patternWriter) space() {
	for p.at < len(p.in) && (p.in[p.at] <= ' ' || p.in[p.at] == 0x7f) {
		p.at++
	}
	if p.out.Len() > 0 {
		p.out.WriteByte(' ')
	}
}

// quoted writes a quoted part; false: the quote is an apostrophe, or isn't closed. The end of a
// text that was cut closes it.
func (p *patternWriter) quoted(quote byte) bool {
	if p.at > 0 && isAlnum(p.in[p.at-1]) || p.unclosed[quote] {
		return false
	}
	for i := p.at + 1; i < len(p.in); i++ {
		if p.in[i] == quote && (i+1 == len(p.in) || !isAlnum(p.in[i+1])) {
			p.at = i + 1
			p.out.WriteString("…")
			return true
		}
	}
	p.unclosed[quote] = true
	if p.cut {
		p.at = len(p.in)
		p.out.WriteString("…")
	}
	return p.cut
}

// word writes a word. The last word of a text that was cut may be a part of one.
func (p *patternWriter) word() {
	from := p.at
	for p.at < len(p.in) && isWordByte(p.in[p.at]) {
		p.at++
	}
	if p.cut && p.at == len(p.in) {
		return
	}
	p.out.WriteString(wordPattern(p.in[from:p.at]))
}

func isQuote(c byte) bool { return c == '"' || c == '\'' || c == '`' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

// isAlnum reports whether a byte is a digit or of a letter. All characters beyond ASCII count as
// letters.
func isAlnum(c byte) bool {
	return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'z' || c >= utf8.RuneSelf
}

// isWordByte reports whether a byte is of a word, which may be a URL or a path.
func isWordByte(c byte) bool { return isAlnum(c) || strings.IndexByte("-_.:/@+%~&?=#", c) >= 0 }
