// Package document reads the YAML and JSON documents of the command line: it decodes and checks
// them, shows how they differ from what is on a server, and applies them.
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

// Lookup reads one environment variable, as os.LookupEnv does.
type Lookup = func(name string) (string, bool)

// Document sets up task types, endpoints and schedules: asyncflow types apply reads it.
type Document struct {
	Types     []Type               `json:"types"`
	Endpoints []client.NewEndpoint `json:"endpoints"`
	Schedules []Schedule           `json:"schedules"`

	file  string
	lines lines
}

// WithFile returns the document with the name of its file, for errors of the server.
func (doc Document) WithFile(name string) Document {
	if name != "-" {
		doc.file = name
	}
	return doc
}

// Type is a task type of a document: the spec of the API, with its name.
type Type struct {
	Name                string `json:"name"`
	client.TaskTypeSpec        // its fields stand beside the name
}

// OfType returns the document of one task type.
func OfType(name string, spec client.TaskTypeSpec) Document {
	return Document{Types: []Type{{Name: name, TaskTypeSpec: spec}}}
}

// Schedule is a schedule of a document: the spec of the API, with its name.
type Schedule struct {
	Name                string `json:"name"`
	client.ScheduleSpec        // its fields stand beside the name
}

// Parse reads and checks a document of task types, endpoints and schedules. It replaces
// ${NAME} in values by what env says. Contexts keep their order and the digits of their numbers.
// The error is an *Error with every problem found, each named by its path, such as
// types[0].stages[1].timeout.
func Parse(raw []byte, env Lookup) (Document, error) {
	var doc Document
	d, err := decode(raw, "types, endpoints or schedules", env, &doc)
	if err != nil {
		return Document{}, err
	}
	partly := map[string]bool{}
	for _, p := range d.problems {
		partly[entryOf(p.Field)] = true
	}
	for _, p := range doc.check() {
		if !partly[entryOf(p.Field)] {
			d.problems = append(d.problems, p)
		}
	}
	if len(d.problems) > 0 {
		return Document{}, newError(d.problems, d.lines)
	}
	doc.lines = d.lines
	return doc, nil
}

// entryOf returns the beginning of a path that names an entry, such as types[0].
func entryOf(path string) string {
	entry, _, _ := strings.Cut(path, ".")
	return entry
}

// Decode reads a document of another kind into what into points to, by the rules of Parse. wanted
// names what should be in the document, for the error of an empty one.
func Decode(raw []byte, wanted string, env Lookup, into any) error {
	d, err := decode(raw, wanted, env, into)
	if err == nil && len(d.problems) > 0 {
		return newError(d.problems, d.lines)
	}
	return err
}

// taskType returns the entry as the rules of the domain take it.
func (t Type) taskType() asyncflow.TaskType {
	full := asyncflow.TaskType{Name: t.Name, Retry: t.Retry, ScheduleLimit: t.ScheduleLimit,
		ScheduleInterval: t.ScheduleInterval,
		Limits:           asyncflow.Limits{MaxInFlight: t.MaxInFlight, Rate: t.Rate}, Flow: t.Flow,
		RollRows: t.RollRows, RollAge: t.RollAge,
		Retention: t.Retention.Tasks, ContextRetention: t.Retention.Context,
		MaxDeliverBytes: t.MaxDeliverBytes, MaxSteps: t.MaxSteps, StageMapping: t.StageMapping,
		OnFinal: onFinal(t.OnFinal), Searchable: t.Searchable, StartBy: t.StartBy, EndBy: t.EndBy}
	for _, s := range t.Stages {
		full.Stages = append(full.Stages, asyncflow.Stage(s))
	}
	return full
}

// onFinal returns an on_final as the rules of the domain take it.
func onFinal(f *client.OnFinal) *asyncflow.OnFinal {
	if f == nil {
		return nil
	}
	return &asyncflow.OnFinal{URL: f.URL, On: f.On, Target: f.Target}
}

// withoutSecret returns an on_final as the server would show it, as far as that is known.
func withoutSecret(f *client.OnFinal) *client.OnFinal {
	if f == nil {
		return nil
	}
	return &client.OnFinal{URL: f.URL, On: f.On, Target: f.Target}
}

// schedule returns the entry as the rules of the domain take it, with its defaults.
func (e Schedule) schedule() asyncflow.Schedule {
	full := asyncflow.Schedule{Name: e.Name, Type: e.Type, Context: e.Context, Priority: e.Priority,
		Cron: e.Cron, TimeZone: e.TimeZone, Every: e.Every,
		Overlap: e.Overlap, CatchUp: e.CatchUp, CatchUpLimit: e.CatchUpLimit, StartsAt: e.StartsAt,
		EndsAt: e.EndsAt, DependsOn: e.DependsOn, ContextFrom: e.ContextFrom,
		OnFinal: onFinal(e.OnFinal), StartBy: e.StartBy, EndBy: e.EndBy, Claim: e.Claim,
		Labels: asyncflow.Labels{User: e.User, Tags: e.Tags, Metadata: e.Metadata, Trace: e.Trace}}
	if !e.Retry.IsZero() {
		full.Retry = &e.Retry
	}
	return full.WithDefaults()
}

// Error is everything that is wrong with a document.
type Error struct {
	File   string // its name, if there is one
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
		texts[i] = fileLine(e.File, e.lines.line(f.Field)) + text
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

// fileLine returns "file:line: ", or as much of it as is known.
func fileLine(file string, line int) string {
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
