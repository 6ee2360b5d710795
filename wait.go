package asyncflow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of waits for signals.
const (
	MinSignalWait = time.Second
	MaxSignalWait = 365 * 24 * time.Hour

	// How long a signal is kept for a task that doesn't wait for it yet.
	MinKeep     = time.Second
	MaxKeep     = 30 * 24 * time.Hour
	DefaultKeep = 24 * time.Hour
)

// Wait is what tasks of a stage of ModeWait wait for.
type Wait struct {
	// Signal is the name of the signal: its data is the output of the stage.
	Signal string `json:"signal"`
	// Timeout is how long a task waits, from when it came to the stage.
	Timeout Duration `json:"timeout"`
	// OnTimeout says where a task goes on for which no signal came; nil: it fails.
	OnTimeout *StageFailure `json:"on_timeout,omitempty"`
	// Links makes the deliveries of the stages before carry links, by which people send the signal;
	// nil: they carry none.
	Links *Links `json:"links,omitempty"`
}

// Signal is sent from outside to a task, or to the tasks that will hold a key.
type Signal struct {
	Name string
	// Task is the id of a task. Otherwise Type and Key name one.
	Task string
	Type string
	Key  string
	// Data becomes the output of the stage that waits; nil: there is none.
	Data json.RawMessage
	// Keep is how long the signal is kept if no task waits for it; zero: DefaultKeep.
	Keep Duration
	// IdempotencyKey names the signal: one with the same key is sent once; "": none.
	IdempotencyKey string
}

// Validate checks how a signal says to whom it goes, and for how long it is kept.
func (s Signal) Validate() error {
	var out problems
	if err := CheckName(s.Name); err != nil {
		out.add("name", "%v", err)
	}
	id, err := ParseTaskID(s.Task)
	switch {
	case s.Task != "" && s.Key != "":
		out.add("task", "and key exclude each other")
	case s.Task == "" && s.Key == "":
		out.add("task", "is required, or type and key")
	case s.Task != "" && err != nil:
		out.add("task", "must look like thumbnails.1.42 (type.position.number)")
	case s.Task != "" && s.Type != "" && s.Type != id.Type:
		out.add("type", "differs from that of the task")
	case s.Key != "" && s.Type == "":
		out.add("type", "is required with key")
	}
	checkSignalKey(&out, "key", s.Key)
	checkSignalKey(&out, "Idempotency-Key", s.IdempotencyKey)
	if strings.HasPrefix(s.IdempotencyKey, linkKeys) {
		out.add("Idempotency-Key", "begins with %s, as only those of links do", linkKeys)
	}
	if !s.Keep.IsZero() {
		checkDuration(&out, "keep", s.Keep, MinKeep, MaxKeep)
	}
	return out.err()
}

func checkSignalKey(out *problems, field, key string) {
	switch {
	case len(key) > MaxKeyLength:
		out.add(field, "is %d bytes long; the limit is %d", len(key), MaxKeyLength)
	case !utf8.ValidString(key) || strings.ContainsRune(key, 0):
		out.add(field, "must be UTF-8 without NUL")
	}
}

// SentSignal is what became of a signal.
type SentSignal struct {
	Type      string
	Task      string // that gets it; "": no task holds the key yet
	KeptUntil time.Time
	Existing  bool // an earlier signal holds its idempotency key
}

// WaitOf returns what tasks of a stage wait for; nil: workers do the stage.
func (t TaskType) WaitOf(stage string) *Wait {
	i := t.StageIndex(stage)
	if i < 0 || t.Stages[i].Mode != ModeWait {
		return nil
	}
	return t.Stages[i].Wait
}

// ChangesWaits reports whether tasks that wait for a signal in a stage of an older version don't
// wait for the same one any more.
func (t TaskType) ChangesWaits(old TaskType) bool {
	return slices.ContainsFunc(old.Stages, func(s Stage) bool {
		if s.Mode != ModeWait || s.Wait == nil {
			return false
		}
		place, _ := t.Mapped(s.Name, 1)
		now := t.WaitOf(place)
		return now == nil || now.Signal != s.Wait.Signal
	})
}

// undo returns where tasks go on that fail in the stage for good; nil: they fail.
func (s Stage) undo() *StageFailure {
	if s.Wait != nil {
		return s.Wait.OnTimeout
	}
	return s.OnFailure
}

// TimedOut returns the outcome of a task for which no signal came in time.
func (w Wait) TimedOut() Outcome {
	return Outcome{Kind: OutcomeTimedOut, Error: fmt.Sprintf(
		"wait_timeout: the signal %q didn't come in time", w.Signal)}
}

// bySignal is the beginning of the endpoint of a stage that a signal passed.
const bySignal = "signal:"

// Signalled returns the outcome of a stage for which its signal came.
func Signalled(name string, data json.RawMessage) Outcome {
	return Outcome{Kind: OutcomeSignalled, Output: data, Endpoint: bySignal + name}
}

// checkWait checks a stage of ModeWait. Nothing is sent, so what says how makes no sense.
func (s Stage) checkWait(field string, out *problems) {
	if s.Wait == nil {
		out.add(field+".wait", "is required in the mode wait")
		return
	}
	if err := CheckName(s.Wait.Signal); err != nil {
		out.add(field+".wait.signal", "%v", err)
	}
	checkDuration(out, field+".wait.timeout", s.Wait.Timeout, MinSignalWait, MaxSignalWait)
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"start_by", !s.StartBy.IsZero()},
		{"timeout", !s.Timeout.IsZero()},
		{"max_processing_time", !s.MaxProcessingTime.IsZero()},
		{"retry", !s.Retry.IsZero()},
		{"max_snooze", !s.MaxSnooze.IsZero()},
		{"priority", s.Priority != 0},
		{"deliver", s.Deliver != nil},
		{"on_failure", s.OnFailure != nil},
		{"fan_out", s.FanOut != nil},
		{"quorum", s.Quorum != nil},
		{"window", s.Window != nil},
		{"identity", s.Identity != ""},
		{"spawn", len(s.Spawn) > 0},
	} {
		if f.set {
			out.add(field+"."+f.name, "can't be combined with the mode wait: "+
				"no worker does the stage")
		}
	}
	if len(s.Next) > 1 {
		out.add(field+".next", "has %d entries; a stage of mode wait can have one: nobody chooses",
			len(s.Next))
	}
}

// checkFirstWait refuses a wait in the first stage if flow keys are in order: a task there counts
// as one that is not begun, so others might overtake it.
func (t TaskType) checkFirstWait(out *problems) {
	if t.Flow != nil && t.Flow.Ordered && len(t.Stages) > 0 && t.Stages[0].Mode == ModeWait {
		out.add("stages[0].mode", "is wait; with flow.ordered the first stage can't wait for a "+
			"signal: put another stage before it")
	}
}
