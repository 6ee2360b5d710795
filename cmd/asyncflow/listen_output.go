package main

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

// listenOutput shows deliveries and what happens around them. It is safe for concurrent use.
type listenOutput struct {
	format string
	mu     sync.Mutex
	stdout io.Writer // a line for each delivery
	stderr io.Writer // everything else
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
		if f.Error != "" || f.Status/100 != 2 {
			o.problem("%s", f.text())
		}
	case "json":
		var b bytes.Buffer
		_ = writeDocument(&b, "", f) // it can always be written
		o.write(o.stdout, b.String())
	default:
		o.write(o.stdout, clockText(f.At)+"  "+printable(f.text())+"\n")
	}
}

// text is what came of a delivery in a line, apart from the time.
func (f forwarded) text() string {
	status := fmt.Sprint(f.Status)
	if f.Status == 0 {
		status = "no answer"
	}
	line := fmt.Sprintf("%s.%s  %s  %s  %s  %d B", f.Type, f.Stage, f.TaskID, status,
		tookText(f.DurationMs), f.Size)
	if f.Repeated {
		line += "  (repeated)"
	}
	if f.Error != "" {
		line += "  " + f.Error
	}
	return line
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
	_, _ = io.WriteString(w, line) // nobody may be there to read it
}
