package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/timetable"
)

// scheduleEntry is a schedule of a document: the spec of the API, with its name.
type scheduleEntry struct {
	Name                string `json:"name"`
	client.ScheduleSpec        // its fields stand beside the name
}

// checkSchedules holds the schedules of a document against the rules of the domain. How
// large a context may be only the server knows.
func (doc document) checkSchedules() []client.FieldError {
	var problems []client.FieldError
	seen := map[string]bool{}
	for i, entry := range doc.Schedules {
		path := fmt.Sprintf("schedules[%d]", i)
		if seen[entry.Name] {
			problems = append(problems, client.FieldError{Field: path + ".name", Message: fmt.Sprintf("is %q, which an earlier schedule has", entry.Name)})
		}
		seen[entry.Name] = true
		full := entry.schedule()
		err := full.Validate(len(full.Context))
		if err == nil {
			_, err = timetable.New(full, time.Now())
		}
		problems = append(problems, below(path, err)...)
	}
	return problems
}

func (e scheduleEntry) schedule() asyncflow.Schedule {
	full := asyncflow.Schedule{Name: e.Name, Type: e.Type, Context: e.Context, Priority: e.Priority, Cron: e.Cron, TimeZone: e.TimeZone, Every: e.Every,
		Overlap: e.Overlap, CatchUp: e.CatchUp, CatchUpLimit: e.CatchUpLimit, StartsAt: e.StartsAt, EndsAt: e.EndsAt}
	if !e.Retry.IsZero() {
		full.Retry = &e.Retry
	}
	return full.WithDefaults()
}

func (doc document) applySchedules(ctx context.Context, c *client.Client, report func(change)) error {
	if len(doc.Schedules) == 0 {
		return nil
	}
	before, err := c.Schedules(ctx)
	if err != nil {
		return err
	}
	versions := map[string]int{}
	for _, s := range before {
		versions[s.Name] = s.Version
	}
	for _, entry := range doc.Schedules {
		after, err := c.PutSchedule(ctx, entry.Name, entry.ScheduleSpec)
		if err != nil {
			return fmt.Errorf("schedule %s: %w", entry.Name, err)
		}
		report(change{Kind: "schedule", Name: entry.Name, Did: whatChanged(versions, after.Name, after.Version)})
	}
	return nil
}

func (doc document) diffSchedules(ctx context.Context, c *client.Client) ([]difference, error) {
	var found []difference
	for _, entry := range doc.Schedules {
		d, err := entry.diff(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("schedule %s: %w", entry.Name, err)
		}
		if d.New || len(d.Fields) > 0 {
			found = append(found, d)
		}
	}
	return found, nil
}

// diff compares a schedule with the server's.
func (e scheduleEntry) diff(ctx context.Context, c *client.Client) (difference, error) {
	d := difference{Kind: "schedule", Name: e.Name}
	old, err := c.Schedule(ctx, e.Name)
	var refused *client.Error
	switch {
	case errors.As(err, &refused) && refused.Status == 404:
		d.New = true
		return d, nil
	case err != nil:
		return d, err
	}
	would, err := c.CheckSchedule(ctx, e.Name, e.ScheduleSpec)
	switch {
	case errors.As(err, &refused) && refused.Status == 404: // its type is new too
		would = specOf(e)
	case err != nil:
		return d, err
	}
	d.Fields = diffValues(flattenSchedule(old), flattenSchedule(would))
	return d, nil
}

// specOf returns what the server would make of an entry.
func specOf(e scheduleEntry) client.Schedule {
	s := e.schedule()
	return client.Schedule{Name: s.Name, Type: s.Type, Context: s.Context, Priority: s.Priority, Retry: e.Retry, Cron: s.Cron, TimeZone: s.TimeZone,
		Every: s.Every, Overlap: s.Overlap, CatchUp: s.CatchUp, CatchUpLimit: s.CatchUpLimit, StartsAt: s.StartsAt, EndsAt: s.EndsAt}
}

// flattenSchedule returns the fields of a schedule that a document has.
func flattenSchedule(s client.Schedule) map[string]string {
	spec := client.ScheduleSpec{Type: s.Type, Context: s.Context, Priority: s.Priority, Retry: s.Retry, Cron: s.Cron, TimeZone: s.TimeZone,
		Every: s.Every, Overlap: s.Overlap, CatchUp: s.CatchUp, CatchUpLimit: s.CatchUpLimit, StartsAt: s.StartsAt.UTC(), EndsAt: s.EndsAt.UTC()}
	var values map[string]json.RawMessage
	_ = json.Unmarshal([]byte(jsonText(spec)), &values) // what was just written can be read
	fields := map[string]string{}
	for name, value := range values {
		fields[name] = string(value)
	}
	return fields
}

// diffValues returns the fields that differ, by name.
func diffValues(before, after map[string]string) []fieldDiff {
	fields := maps.Clone(before)
	maps.Copy(fields, after)
	var found []fieldDiff
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if before[field] != after[field] {
			found = append(found, fieldDiff{field, before[field], after[field]})
		}
	}
	return found
}
