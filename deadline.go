package asyncflow

import (
	"fmt"
	"time"
)

// Deadline is a time, or a duration that counts from when a task is due for the first time. Its
// text is RFC 3339, a duration, or NoDeadline. The zero value leaves it to whatever else says one.
type Deadline struct {
	at    time.Time
	after Duration
	none  bool
}

// NoDeadline is the text of a Deadline that says there is none, whatever the type says.
const NoDeadline = "none"

// DeadlineAt returns a fixed time.
func DeadlineAt(at time.Time) Deadline { return Deadline{at: at} }

// DeadlineAfter returns a duration.
func DeadlineAfter(after time.Duration) Deadline { return Deadline{after: NewDuration(after)} }

// IsZero reports whether nothing is said.
func (d Deadline) IsZero() bool { return d == Deadline{} }

// Text returns the deadline as it is written; "": nothing is said.
func (d Deadline) Text() string {
	switch {
	case d.none:
		return NoDeadline
	case !d.after.IsZero():
		return d.after.Text()
	case !d.at.IsZero():
		return d.at.UTC().Format(time.RFC3339Nano)
	}
	return ""
}

// MarshalText returns d.Text.
func (d Deadline) MarshalText() ([]byte, error) { return []byte(d.Text()), nil }

// UnmarshalText reads a time, a duration or NoDeadline.
func (d *Deadline) UnmarshalText(b []byte) error {
	*d = Deadline{}
	text := string(b)
	if text == NoDeadline {
		d.none = true
		return nil
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		d.at = at.UTC().Truncate(time.Microsecond) // as Postgres keeps it
		return nil
	}
	if err := d.after.UnmarshalText(b); err != nil {
		return fmt.Errorf(`must be a time such as "2026-01-31T12:00:00Z", a duration such as `+
			`"30m", or "none", not %q`, excerpt(b))
	}
	if d.after.IsZero() { // it would say nothing
		return fmt.Errorf(`is 0s; it must be longer, or "none"`)
	}
	return nil
}

// From returns the deadline with a duration that counts from a time.
func (d Deadline) From(begin time.Time) Deadline {
	if !d.after.IsZero() {
		d.at = begin.Add(d.after.Std())
	}
	return d
}

// resolve returns the deadline of a task that is due at a time, and how long after it that is if
// it is a duration.
func (d Deadline) resolve(due time.Time) (at time.Time, within Duration) {
	switch {
	case d.none:
		return time.Time{}, Duration{}
	case d.at.IsZero() && !d.after.IsZero():
		return due.Add(d.after.Std()).Truncate(time.Microsecond), d.after
	}
	return d.at, d.after
}

// OverAt reports whether the deadline of a task that is due at a time is over by then.
func (d Deadline) OverAt(due time.Time) bool {
	at, _ := d.resolve(due)
	return over(at, due)
}

func (d Deadline) check(field string, out *problems) {
	switch after := d.after.Std(); {
	case after < 0 || after > MaxLifetime:
		out.add(field, "is %s; it must be more than 0s and up to %s (10 years)", d.after,
			MaxLifetime)
	case d.after.IsZero() && !d.at.IsZero() && (d.at.Year() < 1970 || d.at.Year() > 2999):
		out.add(field, "is in the year %d; it must be in 1970 to 2999", d.at.Year())
	}
}

// CheckDeadlines checks a start_by and an end_by.
func CheckDeadlines(start, end Deadline) error {
	var out problems
	start.check("start_by", &out)
	end.check("end_by", &out)
	return out.err()
}
