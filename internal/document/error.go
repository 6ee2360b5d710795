package document

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// Error is everything that is wrong with a document.
type Error struct {
	File   string // its name, if it has one
	Fields []client.FieldError

	lines lines
}

// newError returns problems in the order of the document.
func newError(found problems, at lines) *Error {
	slices.SortStableFunc(found, func(a, b client.FieldError) int {
		return cmp.Compare(at.line(a.Field), at.line(b.Field))
	})
	return &Error{Fields: found, lines: at}
}

// InFile adds the name of the file to the error of a document.
func InFile(name string, err error) error {
	var e *Error
	if errors.As(err, &e) && name != "-" {
		e.File = name
	}
	return err
}

// Error returns one problem in the same line, or several in a line each.
func (e *Error) Error() string {
	texts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		text := strings.TrimSpace(f.Field + " " + f.Message)
		texts[i] = place(e.File, e.lines.line(f.Field)) + text
	}
	if len(texts) == 1 {
		return "the document is wrong: " + texts[0]
	}
	count := fmt.Sprint(len(texts))
	if len(texts) >= maxProblems {
		count = "at least " + count
	}
	return fmt.Sprintf("%s things are wrong with the document:\n  %s",
		count, strings.Join(texts, "\n  "))
}

// Unwrap returns the same as an asyncflow.Error.
func (e *Error) Unwrap() error {
	return &asyncflow.Error{Code: asyncflow.CodeInvalid, Fields: e.Fields}
}

// place returns "file:line: ", or as much of it as is known.
func place(file string, line int) string {
	switch {
	case file == "" && line == 0:
		return ""
	case file == "":
		return fmt.Sprintf("line %d: ", line)
	case line == 0:
		return file + ": "
	}
	return fmt.Sprintf("%s:%d: ", file, line)
}

// lines are the lines of a document in which its fields stand, by their paths.
type lines map[string]int

// line returns the line of a field, or else of what it would stand in; 0 if that isn't known.
func (l lines) line(path string) int {
	for {
		if line, ok := l[path]; ok || path == "" {
			return line
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
}
