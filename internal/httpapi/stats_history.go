package httpapi

import (
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// GetStatsHistory returns what the tasks of all of the tenant's types did over time.
func (s *Server) GetStatsHistory(
	ctx context.Context, r GetStatsHistoryRequestObject,
) (GetStatsHistoryResponseObject, error) {
	h, err := s.readHistory(ctx, store.HistoryQuery{From: r.Params.From, Until: r.Params.Until,
		ByType: r.Params.ByType}, r.Params.Step)
	if err != nil {
		return nil, err
	}
	return GetStatsHistory200JSONResponse(h), nil
}

// GetTypeHistory returns what the tasks of a type did over time.
func (s *Server) GetTypeHistory(
	ctx context.Context, r GetTypeHistoryRequestObject,
) (GetTypeHistoryResponseObject, error) {
	h, err := s.readHistory(ctx, store.HistoryQuery{Type: r.Type, Stage: r.Params.Stage,
		From: r.Params.From, Until: r.Params.Until}, r.Params.Step)
	if err != nil {
		return nil, err
	}
	return GetTypeHistory200JSONResponse(h), nil
}

func (s *Server) readHistory(
	ctx context.Context, q store.HistoryQuery, step string,
) (api.StatsHistory, error) {
	q.Tenant = principalOf(ctx).Tenant
	if step != "" {
		var d asyncflow.Duration
		if err := d.UnmarshalText([]byte(step)); err != nil {
			return api.StatsHistory{}, asyncflow.InvalidField("step", "%v", err)
		}
		if q.Step = d.Std(); q.Step == 0 {
			return api.StatsHistory{}, asyncflow.InvalidField("step",
				"is 0; it must be 1m or longer")
		}
	}
	h, err := s.cfg.Store.ReadHistory(ctx, q)
	if err != nil {
		return api.StatsHistory{}, err
	}
	return historyOut(h), nil
}

func historyOut(h store.TypeHistory) api.StatsHistory {
	out := api.StatsHistory{
		Type:     h.Type,
		Stage:    h.Stage,
		From:     h.From,
		Until:    h.Until,
		Step:     asyncflow.NewDuration(h.Step),
		Points:   pointsOut(h.Points, h.Stage != ""),
		Marks:    make([]api.HistoryMark, len(h.Marks)),
		MarksCut: h.MarksCut,
		Recorded: make([]api.HistorySpan, len(h.Recorded)),
	}
	for i, r := range h.Recorded {
		out.Recorded[i] = api.HistorySpan{From: r.From, Until: r.Until}
	}
	for _, t := range h.Types {
		out.Types = append(out.Types,
			api.TypePoints{Type: t.Type, Points: pointsOut(t.Points, false)})
	}
	for i, m := range h.Marks {
		out.Marks[i] = api.HistoryMark{At: m.At, Until: m.Until, Type: m.Type, Text: m.Text,
			Kind: api.HistoryMarkKind(m.Kind)}
	}
	return out
}

func pointsOut(all []store.HistoryPoint, ofStage bool) []api.HistoryPoint {
	out := make([]api.HistoryPoint, len(all))
	for i, p := range all {
		out[i] = historyPointOut(p, ofStage)
	}
	return out
}

// historyPointOut returns a point, of a stage or of a whole type.
func historyPointOut(p store.HistoryPoint, ofStage bool) api.HistoryPoint {
	v := p.Values
	out := api.HistoryPoint{
		At:             p.At,
		Submitted:      v[store.HistorySubmitted],
		Succeeded:      v[store.HistorySucceeded],
		Failed:         v[store.HistoryFailed],
		Cancelled:      v[store.HistoryCancelled],
		Redriven:       v[store.HistoryRedriven],
		Attempts:       v[store.HistoryAttempts],
		FailedAttempts: v[store.HistoryFailures],
		Retried:        max(0, v[store.HistoryFailures]-v[store.HistoryFailed]),
		Snoozed:        v[store.HistorySnoozes],
		Wait:           historyTimesOut(v.Waits()),
		Duration:       historyTimesOut(v.Durations()),
		Pending:        v[store.HistoryPending],
		Waiting:        v[store.HistoryWaiting],
		Running:        v[store.HistoryRunning],
	}
	ended := v[store.HistoryEnded]
	if ofStage {
		out.Attempts = ended
	}
	if ended > 0 {
		out.AverageMs = float32(v[store.HistoryBusy]) / float32(ended)
	}
	for why, n := range v.Backlog() {
		if out.Backlog == nil {
			out.Backlog = map[string]int64{}
		}
		out.Backlog[string(why)] = n
	}
	return out
}

func historyTimesOut(t store.HistoryTimes) api.HistoryTimes {
	return api.HistoryTimes{P50Ms: milliseconds(t.P50), P95Ms: milliseconds(t.P95),
		P99Ms: milliseconds(t.P99)}
}
