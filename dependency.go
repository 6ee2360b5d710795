package asyncflow

import (
	"cmp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of dependencies.
const (
	MaxDependencies = 100 // edges of one task
	// MaxDependencyDepth is the longest chain of tasks that wait for each other.
	MaxDependencyDepth = 100
	MaxWaitFor         = 365 * 24 * time.Hour
	// DefaultWaitFor is how long a task waits for one by its key, which may never come.
	DefaultWaitFor = 7 * 24 * time.Hour
)

// What the status of a dependency says, besides the final statuses of the other task.
const (
	DependencyRunning = "running" // the other task is there, and is still live
	DependencyMissing = "missing" // no task holds the key yet, or the task was deleted
	DependencyLate    = "late"    // the other task had not ended in time
)

// OnFailure is what happens to a task when one that it depends on fails, is cancelled, or doesn't
// end in time.
type OnFailure string

const (
	DependentFails     OnFailure = "fail"   // it fails, too; the default
	DependentCancelled OnFailure = "cancel" // it is cancelled
	DependentRuns      OnFailure = "run"    // it runs nonetheless
)

// Dependency is an edge: a task waits until the end of another task of its tenant.
type Dependency struct {
	// Task names the other task; otherwise Type and Key do. The key may be that of a task that
	// isn't there yet.
	Task TaskID `json:"task,omitzero"`
	Type string `json:"type,omitempty"`
	Key  string `json:"key,omitempty"`

	OnFailure OnFailure `json:"on_failure,omitempty"` // "": DependentFails
	// WaitFor is how long the task waits for the other one. Then the edge counts as failed. 0:
	// DefaultWaitFor by a key, for ever by an id: that task is there, and ends or is deleted.
	WaitFor Duration `json:"wait_for,omitzero"`
}

// Wait returns how long the task waits for the other one; 0: for ever.
func (d Dependency) Wait() time.Duration {
	if d.WaitFor.IsZero() && d.Key != "" {
		return DefaultWaitFor
	}
	return d.WaitFor.Std()
}

// WaitsUntil returns when a task that is submitted at a time stops waiting for the first of its
// dependencies; zero: never.
func WaitsUntil(all []Dependency, submitted time.Time) (first time.Time) {
	for _, d := range all {
		until := submitted.Add(d.Wait())
		if d.Wait() > 0 && (first.IsZero() || until.Before(first)) {
			first = until
		}
	}
	return first
}

// Failure returns what the edge does on a failure, by default DependentFails.
func (d Dependency) Failure() OnFailure { return cmp.Or(d.OnFailure, DependentFails) }

func (d Dependency) check(field string, out *problems) {
	byTask := d.Task != TaskID{}
	switch {
	case byTask && (d.Type != "" || d.Key != ""):
		out.add(field+".task", "excludes type and key")
	case !byTask && d.Type == "":
		out.add(field+".task", "is required, or type and key")
	case !byTask && d.Key == "":
		out.add(field+".key", "is required with type")
	case len(d.Key) > MaxKeyLength:
		out.add(field+".key", "is %d bytes long; the limit is %d", len(d.Key), MaxKeyLength)
	case !utf8.ValidString(d.Key) || strings.ContainsRune(d.Key, 0):
		out.add(field+".key", "must be UTF-8 without NUL")
	}
	if d.Type != "" {
		if err := CheckName(d.Type); err != nil {
			out.add(field+".type", "%v", err)
		}
	}
	switch d.Failure() {
	case DependentFails, DependentCancelled, DependentRuns:
	default:
		out.add(field+".on_failure", "is %q; it must be fail, cancel or run", d.OnFailure)
	}
	if d.WaitFor.Std() < 0 || d.WaitFor.Std() > MaxWaitFor {
		out.add(field+".wait_for", "is %s; it must be up to %s (a year)", d.WaitFor, MaxWaitFor)
	}
}

// ContextFromDependencies as NewTask.ContextFrom gives the first stage an object with the task's
// context and the results of its dependencies.
const ContextFromDependencies = "dependencies"

// checkDependencies checks the edges of a new task or of a schedule's tasks.
func checkDependencies(all []Dependency, contextFrom string, out *problems) {
	if n := len(all); n > MaxDependencies {
		out.add("depends_on", "has %d entries; the limit is %d", n, MaxDependencies)
		return
	}
	for i, d := range all {
		d.check(dependencyField(i), out)
	}
	switch {
	case contextFrom == "":
	case contextFrom != ContextFromDependencies:
		out.add("context_from", "is %q; it must be %s", contextFrom, ContextFromDependencies)
	case len(all) == 0:
		out.add("context_from", "needs depends_on")
	}
}

// BadDependency is the error about the i-th edge of a new task, which can't be: it makes a cycle,
// or names a task that doesn't exist.
func BadDependency(i int, format string, args ...any) *Error {
	err := InvalidField(dependencyField(i), format, args...)
	err.Code = CodeDependency
	return err
}

func dependencyField(i int) string { return "depends_on[" + strconv.Itoa(i) + "]" }
