package asyncflow

import (
	"fmt"
	"time"
)

// Duration is a time.Duration that is written as a Go-style string, such as
// "1m30s", in JSON and YAML.
type Duration time.Duration

// Std returns d as a time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String returns d as it is written in documents.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes d as String does; JSON and query strings use it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

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
