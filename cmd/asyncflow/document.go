package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// document sets up task types, endpoints and schedules: what asyncflow types apply reads.
type document struct {
	Types     []typeEntry          `json:"types"`
	Endpoints []client.NewEndpoint `json:"endpoints"`
	Schedules []scheduleEntry      `json:"schedules"`
}

// typeEntry is a task type of a document: the spec of the API, with its name.
type typeEntry struct {
	Name                string `json:"name"`
	client.TaskTypeSpec        // its fields stand beside the name
}

// documentError is everything that is wrong with a document.
type documentError struct{ fields []client.FieldError }

// Error returns one problem in the same line, several in a line each.
func (e *documentError) Error() string {
	lines := make([]string, len(e.fields))
	for i, f := range e.fields {
		lines[i] = strings.TrimSpace(f.Field + " " + f.Message)
	}
	if len(lines) == 1 {
		return "the document is wrong: " + lines[0]
	}
	return fmt.Sprintf("%d things are wrong with the document:\n  %s", len(lines), strings.Join(lines, "\n  "))
}

// Unwrap returns the same error in the words of the domain.
func (e *documentError) Unwrap() error {
	return &asyncflow.Error{Code: asyncflow.CodeInvalid, Fields: e.fields}
}

// readDocument reads and checks a YAML document of a file, or of standard input if its
// name is "-".
func readDocument(name string, env lookup) (document, error) {
	raw, err := readInput(name)
	if err != nil {
		return document{}, err
	}
	return parseDocument(raw, env)
}

// parseDocument reads and checks a YAML document. ${NAME} in its values is
// replaced by what env says. The error is a *documentError with every problem
// found, each named by its path, such as types[0].stages[1].timeout.
func parseDocument(raw []byte, env lookup) (document, error) {
	tree, err := parseYAML(raw, "types, endpoints or schedules")
	if err != nil {
		return document{}, &documentError{[]client.FieldError{{Message: err.Error()}}}
	}
	var doc document
	d := decoder{env: env}
	d.decode("", tree, &doc)
	if len(d.problems) == 0 { // else the rules would complain about what wasn't read
		d.problems = doc.check()
	}
	if len(d.problems) > 0 {
		return document{}, &documentError{d.problems}
	}
	return doc, nil
}

// parseYAML reads exactly one document. JSON is YAML too. wanted is what it should have.
func parseYAML(raw []byte, wanted string) (any, error) {
	d := yaml.NewDecoder(bytes.NewReader(raw))
	var tree any
	if err := d.Decode(&tree); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("it is not YAML: %s", strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " "))
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

// check holds a document against the rules of the domain, before any of it is
// applied. Where deliveries may go only the server knows.
func (doc document) check() []client.FieldError {
	var problems []client.FieldError
	stages := map[string][]string{}
	for i, t := range doc.Types {
		path := fmt.Sprintf("types[%d]", i)
		if _, twice := stages[t.Name]; twice {
			problems = append(problems, client.FieldError{Field: path + ".name", Message: fmt.Sprintf("is %q, which an earlier type has", t.Name)})
		}
		full := t.taskType()
		stages[t.Name] = full.StageNames()
		problems = append(problems, below(path, full.WithDefaults().Validate())...)
	}
	for i, e := range doc.Endpoints {
		path := fmt.Sprintf("endpoints[%d]", i)
		problems = append(problems, below(path, asyncflow.Endpoint{Type: e.Type, Stage: e.Stage, URL: e.URL, Weight: orNothing(e.Weight),
			Limits: asyncflow.Limits{MaxInFlight: e.MaxInFlight, Rate: e.Rate}, Batch: e.Batch}.Validate(asyncflow.Anywhere))...)
		if known, here := stages[e.Type]; here && e.Stage != "" && !slices.Contains(known, e.Stage) {
			problems = append(problems, client.FieldError{Field: path + ".stage", Message: fmt.Sprintf("is %q; the stages of %s are %s", e.Stage, e.Type, strings.Join(known, ", "))})
		}
		if slices.ContainsFunc(doc.Endpoints[:i], func(o client.NewEndpoint) bool { return sameEndpoint(o, e) }) {
			problems = append(problems, client.FieldError{Field: path, Message: "is the same as an earlier one"})
		}
	}
	return append(problems, doc.checkSchedules()...)
}

func (t typeEntry) taskType() asyncflow.TaskType {
	full := asyncflow.TaskType{Name: t.Name, Retry: t.Retry, ScheduleLimit: t.ScheduleLimit, ScheduleInterval: t.ScheduleInterval,
		Limits: asyncflow.Limits{MaxInFlight: t.MaxInFlight, Rate: t.Rate}, Flow: t.Flow,
		RollRows: t.RollRows, RollAge: t.RollAge, Retention: t.Retention, StageMapping: t.StageMapping}
	for _, s := range t.Stages {
		full.Stages = append(full.Stages, asyncflow.Stage(s))
	}
	return full
}

func sameEndpoint(a, b client.NewEndpoint) bool {
	return a.Type == b.Type && a.Stage == b.Stage && a.URL == b.URL
}

// below returns the fields of an error, with a path before their names.
func below(path string, err error) []client.FieldError {
	var e *asyncflow.Error
	if !errors.As(err, &e) {
		return nil
	}
	fields := slices.Clone(e.Fields)
	for i := range fields {
		fields[i].Field = path + "." + fields[i].Field
	}
	return fields
}
