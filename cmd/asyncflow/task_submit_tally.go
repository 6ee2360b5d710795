package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// tally counts the results of lines, reports refused lines as they come, and shows the
// progress. It is safe for concurrent use.
type tally struct {
	mu        sync.Mutex
	stderr    io.Writer
	bar       *progressbar.ProgressBar // nil unless stderr is a terminal
	submitted int                      // including existing ones
	existing  int                      // their keys belonged to existing tasks
	refused   int
	unknown   int   // perhaps they were submitted
	err       error // the first failure of a whole chunk
}

// newTally returns a tally of an input of size bytes, -1 if that isn't known.
func newTally(stderr io.Writer, size int64) *tally {
	t := &tally{stderr: stderr}
	if isTerminal(stderr) {
		t.bar = progressbar.NewOptions64(size, progressbar.OptionSetWriter(stderr),
			progressbar.OptionShowBytes(true),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(),
			progressbar.OptionSetWidth(20))
	}
	return t
}

// enter counts the results of a chunk's first tasks.
func (t *tally) enter(lines []int, results []client.Result) {
	var bad []badLine
	var existing int
	for i, r := range results {
		switch {
		case r.Err != nil:
			bad = append(bad, badLine{lines[i], detail(r.Err)})
		case r.Task.Existing:
			existing++
		}
	}
	t.mu.Lock()
	t.submitted += len(results) - len(bad)
	t.existing += existing
	t.mu.Unlock()
	t.refuse(bad)
}

// refuse counts refused lines, and reports each with its reason.
func (t *tally) refuse(bad []badLine) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused += len(bad)
	for _, b := range bad {
		t.printNote("line %d: %s", b.line, b.why)
	}
}

// fail notes that the rest of a chunk failed as a whole.
func (t *tally) fail(lines []int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
	}
	what := "not submitted"
	if client.Uncertain(err) {
		t.unknown += len(lines)
		what = "it is unknown whether they were submitted"
	}
	t.printNote("lines %d to %d: %s: %s", lines[0], lines[len(lines)-1], what, explain(err))
}

// printNote writes a line to stderr, above the progress bar.
func (t *tally) printNote(format string, args ...any) {
	if t.bar != nil {
		_ = t.bar.Clear() // the next progress draws it again
	}
	fmt.Fprintln(t.stderr, "asyncflow: "+printable(fmt.Sprintf(format, args...)))
}

// advance moves the progress bar by the bytes of a chunk.
func (t *tally) advance(size int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bar == nil {
		return
	}
	t.bar.Describe(t.summary())
	_ = t.bar.Add64(size) // a failure to draw is no reason to stop
}

func (t *tally) finish() {
	if t.bar != nil {
		_ = t.bar.Clear()
	}
}

func (t *tally) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

func (t *tally) submittedSoFar() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.submitted
}

func (t *tally) refusedSoFar() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refused
}

func (t *tally) summary() string {
	s := fmt.Sprintf("submitted %d", t.submitted)
	if t.existing > 0 {
		s += fmt.Sprintf(" (existing %d)", t.existing)
	}
	s += fmt.Sprintf(", refused %d", t.refused)
	if t.unknown > 0 {
		s += fmt.Sprintf(", unknown %d", t.unknown)
	}
	return s
}

// print writes the summary to stdout.
func (t *tally) print(g *globals) error {
	if g.output == "json" {
		return g.printJSON(map[string]int{"submitted": t.submitted, "existing": t.existing,
			"refused": t.refused, "unknown": t.unknown})
	}
	_, err := fmt.Fprintln(g.stdout, t.summary())
	return err
}

// detail returns in words why a task was refused.
func detail(err error) string {
	switch e := err.(type) {
	case *client.Error:
		return e.Detail()
	case *asyncflow.Error:
		return e.Detail()
	}
	return err.Error()
}
