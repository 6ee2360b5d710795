package document

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	_ "github.com/asyncflow/asyncflow/internal/expression" // reads retry intervals
	"github.com/asyncflow/asyncflow/internal/timetable"
)

// problems are what is wrong with a document, each named by its path.
type problems []client.FieldError

// maxProblems bounds how many problems of a document are named.
const maxProblems = 1000

func (p *problems) add(path, format string, args ...any) {
	if len(*p) < maxProblems {
		*p = append(*p, client.FieldError{Field: path, Message: fmt.Sprintf(format, args...)})
	}
}

// addBelow adds the fields of an error, with a path before their names.
func (p *problems) addBelow(path string, err error) {
	var e *asyncflow.Error
	if !errors.As(err, &e) {
		return
	}
	for _, f := range e.Fields {
		p.add(path+"."+f.Field, "%s", f.Message)
	}
}

// check checks a document by the rules of the domain, before any of it is applied. Only the
// server knows where deliveries may go.
func (doc Document) check() problems {
	var found problems
	stages := doc.checkTypes(&found)
	doc.checkEndpoints(&found, stages)
	doc.checkSchedules(&found)
	return found
}

// checkTypes returns the names of the stages, by type.
func (doc Document) checkTypes(found *problems) map[string][]string {
	stages := map[string][]string{}
	for i, t := range doc.Types {
		path := fmt.Sprintf("types[%d]", i)
		if _, twice := stages[t.Name]; twice {
			found.add(path+".name", "is %q, which an earlier type has", t.Name)
		}
		full := t.taskType()
		stages[t.Name] = full.StageNames()
		found.addBelow(path, full.WithDefaults().Validate())
	}
	return stages
}

func (doc Document) checkEndpoints(found *problems, stages map[string][]string) {
	for i, e := range doc.Endpoints {
		path := fmt.Sprintf("endpoints[%d]", i)
		full := asyncflow.Endpoint{Type: e.Type, Stage: e.Stage, URL: e.URL, Batch: e.Batch,
			Limits: asyncflow.Limits{MaxInFlight: e.MaxInFlight, Rate: e.Rate}}
		if e.Weight != nil {
			full.Weight = *e.Weight
		}
		found.addBelow(path, full.Validate(asyncflow.Anywhere))
		known, here := stages[e.Type]
		if here && e.Stage != "" && !slices.Contains(known, e.Stage) {
			found.add(path+".stage", "is %q; the stages of %s are %s",
				e.Stage, e.Type, strings.Join(known, ", "))
		}
		if slices.ContainsFunc(doc.Endpoints[:i], func(o client.NewEndpoint) bool {
			return o.Type == e.Type && o.Stage == e.Stage && asyncflow.SameURL(o.URL, e.URL)
		}) {
			found.add(path, "is the same as an earlier one")
		}
	}
}

// checkSchedules leaves the size of contexts out: only the server knows its limit.
func (doc Document) checkSchedules(found *problems) {
	seen := map[string]bool{}
	for i, entry := range doc.Schedules {
		path := fmt.Sprintf("schedules[%d]", i)
		if seen[entry.Name] {
			found.add(path+".name", "is %q, which an earlier schedule has", entry.Name)
		}
		seen[entry.Name] = true
		found.addBelow(path, checkSchedule(entry.schedule()))
	}
}

func checkSchedule(s asyncflow.Schedule) error {
	if err := s.Validate(len(s.Context)); err != nil {
		return err
	}
	return timetable.Check(s, time.Now())
}

// maxValues bounds the values of a document: each takes a hundred times the memory of its text.
const maxValues = 500_000

// checkValues returns an error if there are more values in a document than can be read into memory.
func checkValues(raw []byte, isJSON bool) error {
	if n := countValues(raw, isJSON); n > maxValues {
		return fmt.Errorf("it has about %d values; the limit is %d", n, maxValues)
	}
	return nil
}

// countValues estimates the number of values in a document, by what stands before each: brackets
// and commas, and in YAML the signs that a blank follows. In texts of JSON nothing counts; where a
// text of YAML ends is not known before it is read.
func countValues(raw []byte, isJSON bool) int {
	n := 1
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"' && isJSON:
			i = endOfText(raw, i)
		case c == '[' || c == '{' || c == ',':
			n++
		case (c == '-' || c == ':' || c == '?') && !isJSON && blankAt(raw, i+1):
			n++
		}
	}
	return n
}

// endOfText returns where a text of JSON ends.
func endOfText(raw []byte, start int) int {
	for i := start + 1; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(raw)
}

func blankAt(raw []byte, i int) bool {
	return i >= len(raw) || strings.IndexByte(" \t\r\n", raw[i]) >= 0
}
