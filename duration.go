package asyncflow

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration that is written as a string, such as "1m30s" or "30d", in JSON and
// YAML; see ParseDuration. One that was read is written again as it was, so "90m" doesn't become
// "1h30m": durations that last equally long may differ by ==. Compare them by Std.
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

// inDays reports whether d is written in days or weeks.
func (d Duration) inDays() bool { return strings.ContainsAny(d.text, "dw") }

// inHours returns d without days and weeks, for nodes that don't know them.
func (d Duration) inHours() Duration {
	if d.inDays() {
		d.text = ""
	}
	return d
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
// small, and weeks by themselves. Postgres reads it as an interval, too: submits by SQL do so with
// a type's retention. That is why the digits are few, why a text in nanoseconds isn't kept, and why
// no other unit follows weeks: Postgres refuses 1w2d.
var keptText = regexp.MustCompile("^(" + part("w") + "|" + part("d") + part("h") + part("m") +
	part("s") + part("(ms|us)") + ")$")

// maxText bounds a duration in the contract, in bytes.
const maxText = 40

func part(unit string) string { return `([0-9]{1,9}(\.[0-9]{1,6})?` + unit + `)?` }

// UnmarshalText reads a string such as "1m30s"; see ParseDuration.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := ParseDuration(string(b))
	if err != nil {
		return err
	}
	*d = NewDuration(v)
	if text := string(b); text != normalText(v) && len(text) <= maxText &&
		keptText.MatchString(text) {
		d.text = text
	}
	return nil
}

// inUnits is a duration without its sign, and unit a part of it.
var (
	inUnits = regexp.MustCompile(`^(` + unit.String() + `)+$`)
	unit    = regexp.MustCompile(`([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h|d|w)`)
)

// ParseDuration reads a duration as time.ParseDuration does, but knows days and weeks, too: "30d",
// "1w2d12h". A day is 24 hours, a week seven days.
func ParseDuration(text string) (time.Duration, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	refused := fmt.Errorf(`must be a duration such as "30s" or "7d", not %q`,
		excerpt([]byte(text)))
	rest := strings.TrimPrefix(text, "-")
	if len(rest) > maxText || !inUnits.MatchString(rest) {
		return 0, refused
	}
	var sum time.Duration
	for _, part := range unit.FindAllStringSubmatch(rest, -1) {
		d, err := parsePart(part[1], part[2])
		if err != nil || d > math.MaxInt64-sum {
			return 0, refused
		}
		sum += d
	}
	if rest != text {
		sum = -sum
	}
	return sum, nil
}

// parsePart reads a number of one unit.
func parsePart(number, unit string) (time.Duration, error) {
	hours := time.Duration(1)
	switch unit {
	case "d":
		unit, hours = "h", 24
	case "w":
		unit, hours = "h", 7*24
	}
	d, err := time.ParseDuration(number + unit)
	if err == nil && d > math.MaxInt64/hours {
		err = strconv.ErrRange
	}
	return d * hours, err
}

// excerpt returns the start of a document, for an error message.
func excerpt(b []byte) string {
	const most = 40
	if len(b) <= most {
		return string(b)
	}
	return string(b[:most]) + "…"
}
