package asyncflow

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Duration is a time.Duration that is written as a Go-style string, such as "1m30s" or "24h", in
// JSON and YAML. One that was read is written again as it was, so "90m" doesn't become "1h30m":
// durations that last equally long may differ by ==. Compare them by Std.
type Duration struct {
	std  time.Duration
	text string // as it was read; "" for that of normalText
}

// NewDuration returns the Duration that lasts as long as d.
func NewDuration(d time.Duration) Duration { return Duration{std: d} }

// Std returns d as a time.Duration.
func (d Duration) Std() time.Duration { return d.std }

// IsZero reports whether d lasts no time at all, however it is written.
func (d Duration) IsZero() bool { return d.std == 0 }

// String returns d as the standard library writes it, such as 24h0m0s.
func (d Duration) String() string { return d.std.String() }

// Text returns d as it was read, or else as people write it, without parts that are 0: 24h, and not
// 24h0m0s.
func (d Duration) Text() string {
	if d.text != "" {
		return d.text
	}
	return normalText(d.std)
}

// MarshalText returns d.Text. JSON and query strings use it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.Text()), nil }

func normalText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// keptText is what Duration writes again as it was read: each unit at most once, from large to
// small. Postgres reads it as an interval, too: submits by SQL do so with a type's retention.
// That is why the digits are few, and why a text in nanoseconds isn't kept.
var keptText = regexp.MustCompile("^" + part("h") + part("m") + part("s") + part("(ms|us)") + "$")

// maxText bounds a duration in the contract, in bytes.
const maxText = 40

func part(unit string) string { return `([0-9]{1,9}(\.[0-9]{1,6})?` + unit + `)?` }

// UnmarshalText reads a string such as "1m30s".
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf(`must be a duration such as "30s" or "5m", not %q`, excerpt(b))
	}
	*d = NewDuration(v)
	if text := string(b); text != normalText(v) && len(text) <= maxText &&
		keptText.MatchString(text) {
		d.text = text
	}
	return nil
}

// excerpt returns the start of a document, for an error message.
func excerpt(b []byte) string {
	const most = 40
	if len(b) <= most {
		return string(b)
	}
	return string(b[:most]) + "…"
}
