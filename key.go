package asyncflow

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

const (
	DefaultKeyWindow = 24 * time.Hour
	MaxKeyWindow     = 180 * 24 * time.Hour
)

// untilFinal is how KeyUntilFinal is written.
const untilFinal = "until_final"

// KeyWindow is how long an idempotency key stands for a task: for a time, or until the task is
// final. The zero KeyWindow is a day.
type KeyWindow struct {
	time       Duration
	untilFinal bool
}

// KeyUntilFinal lets a key stand for a task until the task is final.
var KeyUntilFinal = KeyWindow{untilFinal: true}

// KeyFor lets a key stand for a task for a time.
func KeyFor(d time.Duration) KeyWindow { return KeyWindow{time: NewDuration(d)} }

// UntilFinal reports whether w is KeyUntilFinal.
func (w KeyWindow) UntilFinal() bool { return w.untilFinal }

// Std returns how long w lasts; 0 of the zero KeyWindow and of KeyUntilFinal.
func (w KeyWindow) Std() time.Duration { return w.time.Std() }

// IsZero reports whether w is the zero KeyWindow.
func (w KeyWindow) IsZero() bool { return !w.untilFinal && w.time.IsZero() }

// String returns until_final, or what Duration.String returns.
func (w KeyWindow) String() string {
	if w.untilFinal {
		return untilFinal
	}
	return w.time.String()
}

// MarshalText returns until_final or a duration. JSON and query strings use it.
func (w KeyWindow) MarshalText() ([]byte, error) {
	if w.untilFinal {
		return []byte(untilFinal), nil
	}
	return w.time.MarshalText()
}

// UnmarshalText reads until_final, or a duration as Duration does.
func (w *KeyWindow) UnmarshalText(b []byte) error {
	*w = KeyWindow{untilFinal: string(b) == untilFinal}
	if w.untilFinal {
		return nil
	}
	if err := w.time.UnmarshalText(b); err != nil {
		return fmt.Errorf("%w, or %s", err, untilFinal)
	}
	return nil
}

// OnConflict says what becomes of a submit if its key stands for another task.
type OnConflict string

const (
	// ConflictReturn answers with the other task, if its context is the same. It is the default.
	ConflictReturn OnConflict = "return"
	// ConflictReject refuses the submit with CodeKeyReused.
	ConflictReject OnConflict = "reject"
	// ConflictCancel cancels the other task, unless it is final. The new task gets the key.
	ConflictCancel OnConflict = "cancel_running"
	// ConflictReplace gives the other task the new context and a new time, if it is not begun.
	// Otherwise the new task gets the key.
	ConflictReplace OnConflict = "replace"
)

// MaxReplacedBytes is how many bytes of replaced contexts a task keeps, and MaxEdits how often its
// context is changed. A task that would keep more is let go: the next one gets the key.
const (
	MaxReplacedBytes = 16 << 20
	MaxEdits         = 1000
)

// OnConflicts are all values of OnConflict.
var OnConflicts = []OnConflict{ConflictReturn, ConflictReject, ConflictCancel, ConflictReplace}

// Returns reports whether the submit is answered with the other task.
func (o OnConflict) Returns() bool { return cmp.Or(o, ConflictReturn) == ConflictReturn }

// Changes reports whether the submit may change the other task.
func (o OnConflict) Changes() bool { return o == ConflictCancel || o == ConflictReplace }

// check adds what is wrong with o, in a submit with a key or without.
func (o OnConflict) check(key string, out *problems) {
	switch {
	case o == "":
	case !slices.Contains(OnConflicts, o):
		out.add("on_conflict", "is %.40q; it must be return, reject, cancel_running or replace",
			string(o))
	case key == "":
		out.add("on_conflict", "needs a key")
	}
}
