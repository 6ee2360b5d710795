package httpapi

import (
	"cmp"
	"context"
	"time"

	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

const (
	defaultFailuresTime = time.Hour
	defaultGroups       = 50
	mostPlaces          = 5   // of a group
	mostTypesLeft       = 100 // of a report
)

// GetFailures groups the tasks that failed in a time by their errors.
func (s *Server) GetFailures(
	ctx context.Context, r GetFailuresRequestObject,
) (GetFailuresResponseObject, error) {
	p := r.Params
	f := store.FailureFilter{Type: p.Type, Since: p.Since, Until: p.Until,
		Order: cmp.Or(store.FailureOrder(p.Order), store.FailuresByCount),
		Limit: cmp.Or(p.Limit, defaultGroups)}
	if f.Until.IsZero() {
		f.Until = s.cfg.Store.Clock.Now()
	}
	if f.Since.IsZero() {
		f.Since = f.Until.Add(-defaultFailuresTime)
	}
	report, err := s.cfg.Store.GroupFailures(ctx, principalOf(ctx).Tenant, f)
	if err != nil {
		return nil, err
	}
	left := report.Left[:min(len(report.Left), mostTypesLeft)]
	out := GetFailures200JSONResponse{Since: f.Since, Until: f.Until, Failures: report.Failures,
		Count: report.Count, Groups: make([]api.FailureGroup, len(report.Groups)),
		Searched: api.FailuresSearched{Tasks: report.Searched, Complete: len(left) == 0,
			TypesLeft: left}}
	for i, g := range report.Groups {
		out.Groups[i] = failureGroupOut(g)
	}
	return out, nil
}

// failureGroupOut returns a group as the API shows it.
func failureGroupOut(g store.FailureGroup) api.FailureGroup {
	out := api.FailureGroup{Fingerprint: g.Fingerprint, ErrorCode: g.Code, Pattern: g.Pattern,
		Count: g.Count, FirstAt: g.First, LastAt: g.Last, Steps: g.Steps[:], NewSinceVersion: g.New,
		Places: []api.FailurePlace{}, PlaceCount: len(g.Stages),
		Example: api.FailureExample{ID: g.Example.ID.String(), Stage: g.Example.Stage,
			Error: g.Example.Error}}
	types := map[string]bool{}
	for i, p := range g.Stages {
		types[p.Type] = true
		if i < mostPlaces {
			out.Places = append(out.Places,
				api.FailurePlace{Type: p.Type, Stage: p.Stage, Count: p.Count})
		}
	}
	out.Types = len(types)
	return out
}
