// Package document reads the YAML and JSON documents of the command line: it decodes and checks
// them, shows how they differ from what a server has, and applies them.
package document

import (
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

// Decode reads a document of another kind into what into points to, by the rules of Parse.
// wanted names what the document should have, for the error of an empty one.
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
		EndsAt: e.EndsAt, DependsOn: e.DependsOn, ContextFrom: e.ContextFrom}
	if !e.Retry.IsZero() {
		full.Retry = &e.Retry
	}
	return full.WithDefaults()
}
