// Package document reads the YAML documents of the command line: it decodes and checks
// them, shows how they differ from what a server has, and applies them.
package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

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
}

// Type is a task type of a document: the spec of the API, with its name.
type Type struct {
	Name                string `json:"name"`
	client.TaskTypeSpec        // its fields stand beside the name
}

// Schedule is a schedule of a document: the spec of the API, with its name.
type Schedule struct {
	Name                string `json:"name"`
	client.ScheduleSpec        // its fields stand beside the name
}

// Error is everything that is wrong with a document.
type Error struct{ Fields []client.FieldError }

// Error returns one problem in the same line, or several in a line each.
func (e *Error) Error() string {
	lines := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		lines[i] = strings.TrimSpace(f.Field + " " + f.Message)
	}
	if len(lines) == 1 {
		return "the document is wrong: " + lines[0]
	}
	return fmt.Sprintf("%d things are wrong with the document:\n  %s",
		len(lines), strings.Join(lines, "\n  "))
}

// Unwrap returns the same as an asyncflow.Error.
func (e *Error) Unwrap() error {
	return &asyncflow.Error{Code: asyncflow.CodeInvalid, Fields: e.Fields}
}

// Parse reads and checks a document of task types, endpoints and schedules. It replaces
// ${NAME} in values by what env says. The error is an *Error with every problem found, each
// named by its path, such as types[0].stages[1].timeout.
func Parse(raw []byte, env Lookup) (Document, error) {
	var doc Document
	if err := Decode(raw, "types, endpoints or schedules", env, &doc); err != nil {
		return Document{}, err
	}
	if problems := doc.check(); len(problems) > 0 {
		return Document{}, &Error{problems}
	}
	return doc, nil
}

// Decode reads a document of another kind into what into points to, by the rules of Parse.
// wanted names what the document should have, for the error of an empty one.
func Decode(raw []byte, wanted string, env Lookup, into any) error {
	tree, err := parseYAML(raw, wanted)
	if err != nil {
		return &Error{[]client.FieldError{{Message: err.Error()}}}
	}
	d := decoder{env: env}
	d.decode("", tree, into)
	if len(d.problems) > 0 {
		return &Error{d.problems}
	}
	return nil
}

// parseYAML reads exactly one document. JSON is YAML too.
func parseYAML(raw []byte, wanted string) (any, error) {
	d := yaml.NewDecoder(bytes.NewReader(raw))
	var tree any
	if err := d.Decode(&tree); err != nil && !errors.Is(err, io.EOF) {
		reason := strings.Fields(strings.TrimPrefix(err.Error(), "yaml: "))
		return nil, fmt.Errorf("it is not YAML: %s", strings.Join(reason, " "))
	}
	if tree == nil {
		return nil, errors.New("it is empty: it should have " + wanted)
	}
	var second any
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("it goes on after its end: only one document is read")
	}
	return tree, nil
}

// taskType returns the entry as the rules of the domain take it.
func (t Type) taskType() asyncflow.TaskType {
	full := asyncflow.TaskType{Name: t.Name, Retry: t.Retry, ScheduleLimit: t.ScheduleLimit,
		ScheduleInterval: t.ScheduleInterval,
		Limits:           asyncflow.Limits{MaxInFlight: t.MaxInFlight, Rate: t.Rate}, Flow: t.Flow,
		RollRows: t.RollRows, RollAge: t.RollAge, Retention: t.Retention, StageMapping: t.StageMapping}
	for _, s := range t.Stages {
		full.Stages = append(full.Stages, asyncflow.Stage(s))
	}
	return full
}

// schedule returns the entry as the rules of the domain take it, with its defaults.
func (e Schedule) schedule() asyncflow.Schedule {
	full := asyncflow.Schedule{Name: e.Name, Type: e.Type, Context: e.Context, Priority: e.Priority,
		Cron: e.Cron, TimeZone: e.TimeZone, Every: e.Every,
		Overlap: e.Overlap, CatchUp: e.CatchUp, CatchUpLimit: e.CatchUpLimit, StartsAt: e.StartsAt,
		EndsAt: e.EndsAt}
	if !e.Retry.IsZero() {
		full.Retry = &e.Retry
	}
	return full.WithDefaults()
}
