package document

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/asyncflow/asyncflow/client"
)

func (doc Document) diffSchedules(ctx context.Context, c *client.Client) ([]Difference, error) {
	var found []Difference
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
func (e Schedule) diff(ctx context.Context, c *client.Client) (Difference, error) {
	d := Difference{Kind: "schedule", Name: e.Name}
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
	switch d.Refused = refusedWhy(err); {
	case d.Refused != "", errors.As(err, &refused) && refused.Status == 404: // its type is new too
		would = specOf(e)
	case err != nil:
		return d, err
	}
	d.Fields = diffValues(flattenSchedule(old), flattenSchedule(would))
	return d, nil
}

// specOf returns what the server would make of an entry.
func specOf(e Schedule) client.Schedule {
	s := e.schedule()
	return client.Schedule{Name: s.Name, Type: s.Type, Context: s.Context, Priority: s.Priority,
		Retry: e.Retry, Cron: s.Cron, TimeZone: s.TimeZone, Every: s.Every, Overlap: s.Overlap,
		CatchUp: s.CatchUp, CatchUpLimit: s.CatchUpLimit, StartsAt: s.StartsAt, EndsAt: s.EndsAt,
		DependsOn: s.DependsOn, ContextFrom: s.ContextFrom,
		User: s.User, Tags: s.Tags, Metadata: s.Metadata, Trace: s.Trace,
		OnFinal: withoutSecret(e.OnFinal), StartBy: s.StartBy, EndBy: s.EndBy, Claim: s.Claim}
}

// flattenSchedule returns the fields of a schedule that may be in a document.
func flattenSchedule(s client.Schedule) map[string]string {
	spec := client.ScheduleSpec{Type: s.Type, Context: s.Context, Priority: s.Priority,
		Retry: s.Retry, Cron: s.Cron, TimeZone: s.TimeZone, Every: s.Every, Overlap: s.Overlap,
		CatchUp: s.CatchUp, CatchUpLimit: s.CatchUpLimit,
		StartsAt: s.StartsAt.UTC(), EndsAt: s.EndsAt.UTC(),
		DependsOn: s.DependsOn, ContextFrom: s.ContextFrom,
		User: s.User, Tags: s.Tags, Metadata: s.Metadata, Trace: s.Trace,
		OnFinal: s.OnFinal, StartBy: s.StartBy, EndBy: s.EndBy, Claim: s.Claim}
	var values map[string]json.RawMessage
	_ = json.Unmarshal([]byte(jsonText(spec)), &values) // what was just written can be read
	fields := map[string]string{}
	for name, value := range values {
		fields[name] = string(value)
	}
	return fields
}
