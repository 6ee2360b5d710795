package history

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// TypeHistory is what the tasks of a type, or of all types, did over time.
type TypeHistory struct {
	Query          // as it was answered
	Points []Point // oldest first. Steps without any numbers are left out
	Marks  []Mark  // oldest first
	// MarksCut reports that there are more marks: older ones.
	MarksCut bool
	// Recorded is when nodes recorded, by steps, oldest first.
	Recorded []RecordedSpan
	// Types are the types that did something, by their names, if they were asked for.
	Types []TypePoints
}

// TypePoints is what one type did over time, as TypeHistory has it.
type TypePoints struct {
	Type   string
	Points []Point
}

// Point is what happened in a step.
type Point struct {
	At time.Time // when the step begins
	Values
}

// ReadHistory returns what the tasks of a type did over time. Its errors are CodeInvalid for a
// query that can't be answered, and CodeNotFound when there is no such type.
func (s *History) ReadHistory(ctx context.Context, q Query) (h TypeHistory, err error) {
	if h.Query, err = q.fix(s.core.Clock.Now()); err != nil {
		return h, err
	}
	ctx = postgres.Patient(ctx)
	if err := h.Query.boundTypes(len(s.core.Catalog.TypesOf(q.Tenant))); err != nil {
		return h, err
	}
	var t *config.Type
	if q.Type != "" {
		if t, err = s.core.Catalog.Fresh(ctx, q.Tenant, q.Type); err != nil {
			return h, err
		}
	}
	byPart, err := s.readUnits(ctx, h.Query)
	if err != nil {
		return h, postgres.Wrap(err, "ReadHistory(%q, %q)", q.Tenant, q.Type)
	}
	if h.Marks, h.MarksCut, err = s.marks(ctx, h.Query); err != nil {
		return h, postgres.Wrap(err, "ReadHistory(%q, %q)", q.Tenant, q.Type)
	}
	if h.Recorded, err = s.recorded(ctx, h.Query); err != nil {
		return h, postgres.Wrap(err, "ReadHistory(%q, %q)", q.Tenant, q.Type)
	}
	if q.Stage != "" && len(byPart) == 0 && (t == nil || t.StageIndex(q.Stage) < 0) {
		return h, asyncflow.InvalidField("stage", "the task type %q has no stage %q", q.Type,
			q.Stage)
	}
	byType := byPart.points(h.Query)
	h.Points = byType[q.Type]
	delete(byType, q.Type)
	for _, name := range slices.Sorted(maps.Keys(byType)) {
		h.Types = append(h.Types, TypePoints{name, byType[name]})
	}
	return h, nil
}

// readSpansSQL reads the rows of a type $1 and of a unit $2 from $3 on and before $4: of the stage
// $5, or, without one, of all. readAllSpansSQL reads those of each type, with $1 = ”.
const (
	readSpansSQL = `
SELECT coalesce(type, ''), stage, at, points FROM {schema}.type_history
WHERE coalesce(type, '') = $1 AND hourly = $2 AND at >= $3 AND at < $4 AND $5 IN ('', stage)`

	readAllSpansSQL = `
SELECT coalesce(type, ''), stage, at, points FROM {schema}.type_history
WHERE $1 = '' AND hourly = $2 AND at >= $3 AND at < $4 AND $5 IN ('', stage)`
)

// readUnits reads the points that a query is about: minutes, or hours for a step of at least one.
// An hour is known from its minutes, from its own points, or both: then the greater numbers count.
func (s *History) readUnits(ctx context.Context, q Query) (gathered, error) {
	g := gathered{}
	err := s.readSpans(ctx, q, minutes, func(r row, spans span) {
		if q.Step >= time.Hour {
			g.values(r.part, r.at).raise(spans.sum())
			return
		}
		for place, v := range spans.values() {
			g.values(r.part, minutes.timeOf(r.at, place)).raise(v)
		}
	})
	if err != nil || q.Step < time.Hour {
		return g, err
	}
	err = s.readSpans(ctx, q, hours, func(r row, spans span) {
		for place, v := range spans.values() {
			g.values(r.part, hours.timeOf(r.at, place)).raise(v)
		}
	})
	return g, err
}

func (s *History) readSpans(ctx context.Context, q Query, u unit, do func(row, span)) error {
	sql := readSpansSQL
	if q.ByType {
		sql = readAllSpansSQL
	}
	rows, err := s.core.DB(q.Tenant).Query(ctx, fill(q.Tenant, sql), q.Type, u.hourly,
		q.From.Truncate(u.row), q.Until, q.Stage)
	if err != nil {
		return err
	}
	return eachRow(rows, do)
}

// points returns the points of a query by types, from those of their parts.
func (g gathered) points(q Query) map[string][]Point {
	byType := map[string]map[time.Time]Values{}
	for p, points := range g {
		bySteps := byType[p.taskType]
		if bySteps == nil {
			bySteps = map[time.Time]Values{}
			byType[p.taskType] = bySteps
		}
		for at, v := range points {
			if at.Before(q.From) || !at.Before(q.Until) {
				continue
			}
			step := at.Truncate(q.Step)
			if bySteps[step] == nil {
				bySteps[step] = Values{}
			}
			bySteps[step].fold(v)
		}
	}
	all := map[string][]Point{}
	for name, bySteps := range byType {
		for at, v := range bySteps {
			all[name] = append(all[name], Point{at, v})
		}
		slices.SortFunc(all[name], func(a, b Point) int { return a.At.Compare(b.At) })
	}
	return all
}
