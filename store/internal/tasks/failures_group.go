package tasks

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// FailureGroup counts the failures with errors of one kind.
type FailureGroup struct {
	Fingerprint string // see asyncflow.Fingerprint
	Code        string // see asyncflow.ErrorCode; "": the errors are without one
	Pattern     string // see asyncflow.ErrorPattern
	Count       int
	First, Last time.Time // when the first and the last of them failed
	Steps       [failureSteps]int
	Stages      []StageFailures // most failures first
	Example     FailureExample  // the last of them
	// New reports whether all of them came after the present version of their type was applied,
	// though its earlier version was in use in the time of the report.
	New bool

	stages map[StageFailures]*stageCount // keys without a count
}

// StageFailures is how many failures of a group a stage counts.
type StageFailures struct {
	Type, Stage string
	Count       int
}

// stageCount is what is known of the failures in a stage.
type stageCount struct {
	count int
	first time.Time
}

// FailureExample is a task that failed.
type FailureExample struct {
	ID    asyncflow.TaskID
	Stage string
	Error string
}

// exampleBytes is how many bytes of errors a report keeps of examples. After that it keeps only
// the patterns.
const exampleBytes = 8 << 20

// add adds a failure to its group.
func (r *failureReader) add(f failure) {
	r.failures++
	pattern := asyncflow.ErrorPattern(f.text)
	print := asyncflow.Fingerprint(f.code, pattern)
	g := r.groups[print]
	if g == nil {
		g = &FailureGroup{Fingerprint: print, Code: f.code, Pattern: pattern, First: f.at,
			stages: map[StageFailures]*stageCount{}}
		r.groups[print] = g
	}
	g.Count++
	g.Steps[r.step(f.at)]++
	if f.at.Before(g.First) {
		g.First = f.at
	}
	key := StageFailures{Type: f.id.Type, Stage: f.stage}
	stage := g.stages[key]
	if stage == nil {
		stage = &stageCount{first: f.first}
		g.stages[key] = stage
	}
	stage.count++
	if f.first.Before(stage.first) {
		stage.first = f.first
	}
	if !f.at.Before(g.Last) {
		g.Last = f.at
		r.exemplify(g, f)
	}
}

// exemplify takes a failure as the example of its group.
func (r *failureReader) exemplify(g *FailureGroup, f failure) {
	r.bytes -= len(g.Example.Error)
	if r.bytes+len(f.text) > exampleBytes {
		f.text = g.Pattern
	}
	r.bytes += len(f.text)
	g.Example = FailureExample{ID: f.id, Stage: f.stage, Error: f.text}
}

// step returns in which step of the report's time a failure is.
func (r *failureReader) step(at time.Time) int {
	whole := r.filter.Until.Sub(r.filter.Since)
	part := float64(at.Sub(r.filter.Since)) / float64(whole) * failureSteps
	return min(max(int(part), 0), failureSteps-1)
}

// report returns what was read.
func (r *failureReader) report() FailureReport {
	out := FailureReport{Failures: r.failures, Searched: r.searched, Count: len(r.groups)}
	for _, l := range r.lines {
		if !l.over {
			out.Left = append(out.Left, l.t.Name)
		}
	}
	all := slices.SortedFunc(maps.Values(r.groups), func(a, b *FailureGroup) int {
		if r.filter.Order == FailuresNewest {
			return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Fingerprint, b.Fingerprint))
		}
		return cmp.Or(b.Count-a.Count, b.Last.Compare(a.Last),
			cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	for _, g := range all[:min(len(all), r.filter.Limit)] {
		for stage, n := range g.stages {
			g.Stages = append(g.Stages, StageFailures{stage.Type, stage.Stage, n.count})
		}
		slices.SortFunc(g.Stages, func(a, b StageFailures) int {
			return cmp.Or(b.Count-a.Count, cmp.Compare(a.Type, b.Type),
				cmp.Compare(a.Stage, b.Stage))
		})
		out.Groups = append(out.Groups, *g)
	}
	return out
}

// tellVersions notes which groups are new since the present version of their types. That is known
// of a version that replaced another within the time of the report, of types that were read to the
// end.
func (s *lists) tellVersions(
	ctx context.Context, tenant string, groups []FailureGroup, since time.Time, left []string,
) error {
	if len(groups) == 0 {
		return nil
	}
	applied := map[string]time.Time{}
	var name string
	var at time.Time
	rows, err := s.core.DB(tenant).Query(ctx, config.NewTables(tenant, config.SharedSet).SQL(0,
		`SELECT name, updated_at FROM {types} WHERE version > 1 AND updated_at > $1
		  AND name <> ALL ($2::text[])`), since, append([]string{}, left...))
	if err != nil {
		return err
	}
	if _, err := pgx.ForEachRow(rows, []any{&name, &at}, func() error {
		applied[name] = at
		return nil
	}); err != nil {
		return err
	}
	for i := range groups {
		groups[i].New = true
		for stage, n := range groups[i].stages {
			at, known := applied[stage.Type]
			groups[i].New = groups[i].New && known && !n.first.Before(at)
		}
	}
	return nil
}
