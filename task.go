package asyncflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Status is the state of a task. It is never stored: it follows from the table that holds the
// task's token row, or from the last row of its journal.
type Status string

const (
	// in wait: due later, or blocked; a background job moves it on
	StatusWaiting Status = "waiting"
	StatusPending Status = "pending" // in ready: a dispatcher leases it when it is due
	// in lease: an attempt is in flight; its settlement or rescue moves it on
	StatusRunning   Status = "running"
	StatusSucceeded Status = "succeeded" // final: passed its last stage
	// final: no attempts left, or the worker asked not to retry
	StatusFailed    Status = "failed"
	StatusCancelled Status = "cancelled" // final: cancelled by a caller or the worker
)

// Statuses are all statuses, in the order of a task's life.
var Statuses = []Status{StatusWaiting, StatusPending, StatusRunning, StatusSucceeded, StatusFailed,
	StatusCancelled}

// Final reports whether a task with this status is over.
func (s Status) Final() bool {
	return s == StatusSucceeded || s == StatusFailed || s == StatusCancelled
}

// Limits of what a client may submit.
const (
	DefaultMaxContext = 256 << 10 // bytes of a context; an operator's setting
	MaxContextDepth   = 128       // nesting of a context or an output
	MaxBatch          = 1000      // tasks of one batch call
	MaxDelay          = 365 * 24 * time.Hour
	MaxWait           = time.Minute // the longest wait for a final state in one call
	MaxKeyLength      = 255         // bytes of an idempotency key
)

// NewTask is a task to submit.
type NewTask struct {
	Type    string
	Context json.RawMessage // passed on byte by byte, never read
	Options Options
	RunAt   time.Time // not before this time; zero: at once
	Delay   Duration  // no sooner than this long from now; excludes RunAt
	// StartBy and EndBy are its lifetime; zero: as its type says.
	StartBy, EndBy Deadline
	// KeyWindow is how long Options.Key stands for this task.
	KeyWindow KeyWindow
	// OnConflict says what becomes of the submit if the key stands for another task.
	OnConflict OnConflict
	// MaxWait bounds how long later submits with ConflictReplace postpone the task, from its first
	// submit on; zero: no bound.
	MaxWait Duration
	// Operates reports whether the caller may change any task, also one that was not submitted with
	// ConflictReplace.
	Operates bool
	// By is who submits the task, for the journal of the one that it replaces; "": unknown.
	By string
	// OnlyReplaces is why it can't be another task, so that it only replaces one; nil: it can.
	OnlyReplaces error
	// Takes is the task from which the new one takes the key, if that still holds it; zero: none.
	Takes TaskID
	// DependsOn are the tasks that it waits for.
	DependsOn []Dependency
}

// Options are the parts of a task that control its attempts. They are stored beside its context
// as a JSON document, which is absent if none is set.
type Options struct {
	// Child is its part, if it is the child of another task. It is the first field, so that the
	// database recognises children by how their options begin: the rest may be long.
	Child    *Child       `json:"child,omitempty"`
	Priority Priority     `json:"priority,omitempty"`
	Retry    *RetryPolicy `json:"retry,omitempty"`
	Key      string       `json:"key,omitempty"` // its idempotency key
	// tasks with the same key share the limits of TaskType.Flow
	FlowKey string `json:"flow_key,omitempty"`
	// DependsOn is the number of its dependencies.
	DependsOn int `json:"depends_on,omitempty"`
	// ContextFrom, if it is ContextFromDependencies, adds their results to the context.
	ContextFrom string `json:"context_from,omitempty"`
	// Spawned says which task started it; nil: none.
	Spawned *Spawned `json:"spawned,omitempty"`
	// OnFinal says where its end is told; nil: as its type says.
	OnFinal *OnFinal `json:"on_final,omitempty"`
	// Notification is what it tells, if it is a notification itself; nil: it is none.
	Notification *Notification `json:"notification,omitempty"`
	// RerunOf is the id of the task that it runs again; "": none.
	RerunOf string `json:"rerun_of,omitempty"`
	// Replaceable reports whether a later submit with its key may replace its context.
	Replaceable bool `json:"replaceable,omitempty"`
	// Lifetime says by when it must begin and end; nil: it may take any time.
	Lifetime *Lifetime `json:"lifetime,omitempty"`
	// Erased says when and by whom its contents were erased; nil: they are there.
	Erased *Erasure `json:"erased,omitempty"`
	// Claim says which claimers may get it; nil: all.
	Claim *ClaimRules `json:"claim,omitempty"`
	Labels
}

// IsZero reports whether no option is set.
func (o Options) IsZero() bool {
	return len(o.Priority) == 0 && o.Retry == nil && o.Key == "" && o.FlowKey == "" &&
		o.DependsOn == 0 && o.ContextFrom == "" && o.Child == nil && o.Spawned == nil &&
		o.OnFinal == nil && o.Notification == nil && o.RerunOf == "" && o.Erased == nil &&
		!o.Replaceable && o.Lifetime == nil && o.Claim == nil && o.Labels.IsZero()
}

// Validate checks a new task. now is the database's time, and maxContext the limit for the
// context in bytes. The context must already be JSON, read as part of a document.
func (t NewTask) Validate(now time.Time, maxContext int) error {
	var out problems
	if err := CheckName(t.Type); err != nil {
		out.add("type", "%v", err)
	}
	checkDocument(&out, "context", t.Context, maxContext)
	t.Options.Priority.check("priority", &out)
	if t.Options.Retry != nil {
		t.Options.Retry.check("retry", &out)
	}
	t.checkKey(&out)
	t.checkFlowKey(&out)
	t.Options.Claim.check(&out)
	t.Options.Labels.check(&out)
	switch {
	case !t.Delay.IsZero() && !t.RunAt.IsZero():
		out.add("delay", "and run_at exclude each other")
	case t.Delay.Std() < 0 || t.Delay.Std() > MaxDelay:
		out.add("delay", "is %s; it must be 0s to %s (a year)", t.Delay, MaxDelay)
	case t.RunAt.After(now.Add(MaxDelay)):
		out.add("run_at", "is more than %s (a year) ahead", MaxDelay)
	}
	t.checkLifetime(now, &out)
	checkDependencies(t.DependsOn, t.Options.ContextFrom, &out)
	return out.err()
}

func (t NewTask) checkKey(out *problems) {
	switch key := t.Options.Key; {
	case len(key) > MaxKeyLength:
		out.add("key", "is %d bytes long; the limit is %d", len(key), MaxKeyLength)
	case !utf8.ValidString(key) || strings.ContainsRune(key, 0):
		out.add("key", "must be UTF-8 without NUL")
	case !t.KeyWindow.IsZero() && key == "":
		out.add("key_window", "needs a key")
	case t.KeyWindow.Std() < 0 || t.KeyWindow.Std() > MaxKeyWindow:
		out.add("key_window", "is %s; it must be up to %s (180 days)", t.KeyWindow, MaxKeyWindow)
	}
	t.OnConflict.check(t.Options.Key, out)
	if t.OnConflict.Changes() && len(t.DependsOn) > 0 {
		out.add("on_conflict", "%s and depends_on exclude each other", t.OnConflict)
	}
	t.checkMaxWait(out)
}

func (t NewTask) checkMaxWait(out *problems) {
	switch wait := t.MaxWait.Std(); {
	case t.MaxWait.IsZero():
	case t.OnConflict != ConflictReplace:
		out.add("max_wait", "needs on_conflict replace")
	case wait < 0 || wait > MaxDelay:
		out.add("max_wait", "is %s; it must be up to %s (a year)", t.MaxWait, MaxDelay)
	case t.Delay.IsZero():
		out.add("max_wait", "needs a delay")
	case wait < t.Delay.Std():
		out.add("max_wait", "is %s; it must be at least the delay, which is %s", t.MaxWait, t.Delay)
	}
}

// checkLifetime checks the deadlines. A time that is over is no error: the task expires at once.
func (t NewTask) checkLifetime(now time.Time, out *problems) {
	t.StartBy.check("start_by", out)
	t.EndBy.check("end_by", out)
	due := t.RunAt
	if !t.Delay.IsZero() {
		due = now.Add(t.Delay.Std())
	}
	if start := t.StartBy.at; !start.IsZero() && start.Before(due) {
		out.add("start_by", "is %s, which is before the task is due", t.StartBy.Text())
	}
	if end := t.EndBy.at; !end.IsZero() && end.Before(due) {
		out.add("end_by", "is %s, which is before the task is due", t.EndBy.Text())
	}
}

func (t NewTask) checkFlowKey(out *problems) {
	switch key := t.Options.FlowKey; {
	case len(key) > MaxFlowKey:
		out.add("flow_key", "is %d bytes long; the limit is %d", len(key), MaxFlowKey)
	case !utf8.ValidString(key) || strings.ContainsRune(key, 0):
		out.add("flow_key", "must be UTF-8 without NUL")
	}
}

// CheckDocument explains what is wrong with a context or an output that was cut out of a JSON
// document, and so is JSON itself. It may take at most most bytes; field is its name in the error.
func CheckDocument(field string, doc json.RawMessage, most int) error {
	var out problems
	checkDocument(&out, field, doc, most)
	return out.err()
}

func checkDocument(out *problems, field string, doc json.RawMessage, most int) {
	if len(doc) > most {
		out.tooLarge = true
		out.add(field, "is %d bytes; the limit is %d", len(doc), most)
		return
	}
	if err := checkText(doc); err != nil {
		out.add(field, "%v", err)
	}
}

// CheckJSON explains what is wrong with a document to store: it must be JSON in UTF-8, nested
// at most 128 deep. (encoding/json lets invalid UTF-8 pass; Postgres refuses it, and would
// refuse the whole batch with it.)
func CheckJSON(doc []byte) error {
	if err := checkText(doc); err != nil {
		return err
	}
	if !json.Valid(doc) {
		return fmt.Errorf("is not valid JSON")
	}
	return nil
}

// checkText is CheckJSON for valid JSON; validating takes the longest.
func checkText(doc []byte) error {
	switch {
	case len(doc) == 0:
		return fmt.Errorf("is required")
	case !utf8.Valid(doc):
		return fmt.Errorf("is not valid UTF-8")
	case Depth(doc) > MaxContextDepth:
		return fmt.Errorf("is nested more than %d deep", MaxContextDepth)
	}
	return nil
}

// Depth returns how deep a JSON document is nested.
func Depth(doc []byte) int {
	deepest, now := 0, 0
	for i := 0; i < len(doc); i++ {
		switch doc[i] {
		case '"':
			i = StringEnd(doc, i) - 1
		case '{', '[':
			now++
			deepest = max(deepest, now)
		case '}', ']':
			now--
		}
	}
	return deepest
}

// StringEnd returns where the JSON string that begins at i ends, its quote included. It looks at
// each byte once or twice, however many of them are escapes.
func StringEnd(doc []byte, i int) int {
	for i++; ; {
		quote := bytes.IndexByte(doc[i:], '"')
		if quote < 0 {
			return len(doc)
		}
		quote += i
		backslashes := 0
		for quote-backslashes > i && doc[quote-backslashes-1] == '\\' {
			backslashes++
		}
		i = quote + 1
		if backslashes%2 == 0 {
			return i
		}
	}
}
