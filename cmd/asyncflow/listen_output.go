package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// listenOutput shows deliveries and what happens around them. It is safe for concurrent use.
type listenOutput struct {
	format string
	mu     sync.Mutex
	stdout io.Writer // a line for each delivery
	stderr io.Writer // everything else
	raw    bool      // the terminal doesn't return the carriage by itself
}

func newListenOutput(g *globals) *listenOutput {
	return &listenOutput{format: g.output, stdout: g.stdout, stderr: g.stderr}
}

// forwarded is what came of a delivery.
type forwarded struct {
	At         time.Time `json:"at"`
	Type       string    `json:"type"`
	Stage      string    `json:"stage"`
	TaskID     string    `json:"task_id"`
	Attempt    int       `json:"attempt"`
	Status     int       `json:"status,omitempty"`
	DurationMs float32   `json:"duration_ms"`
	Size       int       `json:"size"` // of the request, in bytes
	Error      string    `json:"error,omitempty"`
	Repeated   bool      `json:"repeated,omitempty"`
}

// show shows a delivery in one line.
func (o *listenOutput) show(f forwarded) {
	switch o.format {
	case outputQuiet:
		if f.Error != "" {
			o.problem("%s.%s  %s  %s", f.Type, f.Stage, f.TaskID, f.Error)
		}
	case "json":
		var b bytes.Buffer
		doc := json.NewEncoder(&b)
		doc.SetEscapeHTML(false)
		_ = doc.Encode(f) // it can always be written
		o.write(o.stdout, b.String())
	default:
		status := fmt.Sprint(f.Status)
		if f.Status == 0 {
			status = "no answer"
		}
		line := fmt.Sprintf("%s  %s.%s  %s  %s  %s  %d B", clockText(f.At), f.Type, f.Stage, f.TaskID,
			status, tookText(f.DurationMs), f.Size)
		if f.Repeated {
			line += "  (repeated)"
		}
		if f.Error != "" {
			line += "  " + f.Error
		}
		o.write(o.stdout, printable(line)+"\n")
	}
}

// note tells what happened, unless the output is quiet.
func (o *listenOutput) note(format string, args ...any) {
	if o.format != outputQuiet {
		o.problem(format, args...)
	}
}

// problem tells what went wrong.
func (o *listenOutput) problem(format string, args ...any) {
	o.write(o.stderr, clockText(now())+"  "+printable(fmt.Sprintf(format, args...))+"\n")
}

func (o *listenOutput) write(w io.Writer, line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.raw {
		line = line[:len(line)-1] + "\r\n"
	}
	_, _ = io.WriteString(w, line) // nobody may be there to read it
}

// keys calls for each key that is pressed, if there is a terminal. It returns a function that gives
// the terminal back.
func (o *listenOutput) keys(pressed func(key byte)) (restore func()) {
	in := int(os.Stdin.Fd())
	if o.format != "table" || !isTerminal(o.stdout) || !term.IsTerminal(in) {
		return func() {}
	}
	before, err := term.MakeRaw(in)
	if err != nil {
		return func() {}
	}
	o.mu.Lock()
	o.raw = true
	o.mu.Unlock()
	go func() {
		var key [1]byte
		for {
			if n, err := os.Stdin.Read(key[:]); err != nil {
				return
			} else if n == 1 {
				pressed(key[0])
			}
		}
	}()
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.raw = false
		_ = term.Restore(in, before) // there is nothing else to try
	}
}
