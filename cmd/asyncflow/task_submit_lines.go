package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/client/api"
)

const (
	maxLine       = 16 << 20 // bytes of one line; no server takes a larger body
	maxChunkBytes = 4 << 20  // bytes of the lines of a chunk
)

// chunk holds the tasks of one call, and the lines that they came from.
type chunk struct {
	tasks   []client.NewTask
	lines   []int     // the line number of each task; 1 is the first
	refused []badLine // lines that are no tasks
	last    int       // number of the last line read
	size    int64     // bytes read
}

// badLine is a line that was refused.
type badLine struct {
	line int
	why  string
}

// lineReader reads any number of tasks from JSON Lines.
type lineReader struct {
	r        *bufio.Reader
	template client.NewTask // with a type: each line is a context; without: a whole task
	number   int
}

func newLineReader(r io.Reader, template client.NewTask) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 64<<10), template: template}
}

// next returns up to a batch of tasks. io.EOF comes with the last of them.
func (l *lineReader) next() (chunk, error) {
	var c chunk
	for len(c.tasks) < asyncflow.MaxBatch && len(c.refused) < asyncflow.MaxBatch &&
		c.size < maxChunkBytes {
		text, size, err := l.line()
		c.size += size
		if size > 0 && (err == nil || errors.Is(err, io.EOF)) { // else half a line
			l.number++
			l.take(&c, text)
		}
		c.last = l.number
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

// take adds a line to a chunk, unless it is blank. A nil text stands for a line
// that is too long.
func (l *lineReader) take(c *chunk, text []byte) {
	if text == nil {
		c.refused = append(c.refused,
			badLine{l.number, fmt.Sprintf("is longer than %d bytes", maxLine)})
		return
	}
	if l.number == 1 {
		text = bytes.TrimPrefix(text, []byte("\ufeff"))
	}
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return
	}
	task, err := l.parse(text)
	if err != nil {
		c.refused = append(c.refused, badLine{l.number, err.Error()})
		return
	}
	c.tasks = append(c.tasks, task)
	c.lines = append(c.lines, l.number)
}

// line returns a line, nil if it is too long, and its size in the input.
func (l *lineReader) line() (text []byte, size int64, err error) {
	text = []byte{}
	for {
		part, err := l.r.ReadSlice('\n')
		size += int64(len(part))
		if text != nil && len(text)+len(part) <= maxLine {
			text = append(text, part...)
		} else {
			text = nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, size, err
		}
	}
}

// parse reads the task of a line. It leaves to the server what the server checks.
func (l *lineReader) parse(text []byte) (client.NewTask, error) {
	if err := asyncflow.CheckJSON(text); err != nil {
		return client.NewTask{}, err
	}
	if l.template.Type != "" {
		task := l.template
		task.Context = text
		return task, nil
	}
	var task client.NewTask
	err := api.Decode(text, &task)
	if err != nil {
		err = wholeTaskError(text, err)
	}
	return task, err
}

// wholeTaskError explains why a line isn't a whole task.
func wholeTaskError(text []byte, decoding error) error {
	var task client.NewTask
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&task)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong) && wrong.Field != "":
		return fmt.Errorf("%s must not be a %s", wrong.Field, wrong.Value)
	case errors.As(err, &wrong):
		return fmt.Errorf("is a %s; without a task type each line must be a whole task",
			wrong.Value)
	case err != nil:
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	name, what, ok := strings.Cut(strings.TrimPrefix(decoding.Error(), `field "`), `" `)
	if !ok {
		return decoding
	}
	return errors.New(name + " " + what)
}
