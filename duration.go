package asyncflow

import (
	"fmt"
	"strings"
	"time"
)

// Duration is a time.Duration that is written as a Go-style string, such as
// "1m30s" or "24h", in JSON and YAML.
type Duration time.Duration

// Std returns d as a time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String returns d as the standard library writes it, such as 24h0m0s.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes d as people do, without parts that are 0: 24h, and not 24h0m0s. JSON and query
// strings use it.
func (d Duration) MarshalText() ([]byte, error) {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return []byte(text), nil
}

// UnmarshalText reads a string such as "1m30s".
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf(`must be a duration such as "30s" or "5m", not %q`, excerpt(b))
	}
	*d = Duration(v)
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
