package httpapi

import (
	"bytes"
	"context"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// GetStats counts the tasks of all of the tenant's types, or of one type.
func (s *Server) GetStats(
	ctx context.Context, r GetStatsRequestObject,
) (GetStatsResponseObject, error) {
	stats, err := s.cfg.Store.Stats(ctx, principalOf(ctx).Tenant, r.Params.Type)
	if err != nil {
		return nil, err
	}
	data := make([]api.Stats, len(stats))
	for i, t := range stats {
		data[i] = statsOut(t)
	}
	return GetStats200JSONResponse{Data: data}, nil
}

func statsOut(t store.Stats) api.Stats {
	var backlog []api.Backlog
	for _, b := range t.Backlog {
		backlog = append(backlog, api.Backlog{
			WaitsFor:     b.WaitsFor,
			WaitsBecause: b.Because,
			Stage:        b.Stage,
			Tasks:        b.Tasks,
			OldestDue:    b.Oldest,
		})
	}
	return api.Stats{
		Type:        t.Type,
		Paused:      t.Paused,
		Waiting:     t.Waiting,
		Pending:     t.Pending,
		Running:     t.Running,
		Succeeded:   t.Succeeded,
		Failed:      t.Failed,
		Cancelled:   t.Cancelled,
		Expired:     t.Expired,
		OldestDue:   t.OldestDue,
		Backlog:     backlog,
		Latency:     latencyOut(t.Latency),
		Wait:        latencyOut(t.Wait),
		StageWaits:  stageWaitsOut(t.StageWaits),
		Turnaround:  latencyOut(t.Turnaround),
		StageClaims: stageClaimsOut(t.StageClaims),
		LargestKeys: largestKeysOut(t.LargestKeys),
		Rolls:       t.Rolls,
		Rates: api.Rates{
			Submitted: float32(t.Rates.Submitted),
			Attempts:  float32(t.Rates.Attempts),
			Failures:  float32(t.Rates.Failures),
			Snoozes:   float32(t.Rates.Snoozes),
			Finished:  float32(t.Rates.Finished),
		},
	}
}

func stageClaimsOut(claims []store.StageClaims) []api.StageClaims {
	var out []api.StageClaims
	for _, c := range claims {
		out = append(out, api.StageClaims{Stage: c.Stage, LateVotes: c.LateVotes,
			ClosedWindows: c.ClosedWindows})
	}
	return out
}

func largestKeysOut(keys []store.KeyTasks) []api.KeyTasks {
	var out []api.KeyTasks
	for _, k := range keys {
		out = append(out, api.KeyTasks{FlowKey: k.FlowKey, Tasks: k.Tasks})
	}
	return out
}

func stageWaitsOut(waits []store.StageWait) []api.StageWait {
	var out []api.StageWait
	for _, w := range waits {
		out = append(out, api.StageWait{Stage: w.Stage, P50Ms: milliseconds(w.P50),
			P99Ms: milliseconds(w.P99)})
	}
	return out
}

// StatsEvents follows the stats of all of the tenant's types.
func (s *Server) StatsEvents(
	ctx context.Context, _ StatsEventsRequestObject,
) (StatsEventsResponseObject, error) {
	stream, err := s.newStatsStream(principalOf(ctx))
	if err != nil {
		return nil, err
	}
	for stream.version == 0 { // the answer can still be an error
		if err := stream.take(ctx); err != nil {
			stream.Close()
			return nil, err
		}
	}
	return stream, nil
}

// statsStream is the stream of a tenant's stats.
type statsStream struct {
	*eventStream
	feed    *statsFeed
	version int64      // that the client knows, once queue is sent
	queue   []statsDoc // to be sent
	all     bool       // the next event begins the list anew
}

func (s *Server) newStatsStream(p auth.Principal) (*statsStream, error) {
	feed, leave := s.statsFeeds.follow(p.Tenant)
	stream, err := s.newStream(p, leave)
	if err != nil {
		leave()
		return nil, err
	}
	e := &statsStream{eventStream: stream, feed: feed}
	stream.wait = e.waitForStats
	return e, nil
}

// VisitStatsEventsResponse begins the answer.
func (e *statsStream) VisitStatsEventsResponse(c *fiber.Ctx) error { return e.begin(c, e) }

// waitForStats adds an event with what changed, or waits until something does. An error ends the
// stream: the client connects again and gets the error as its answer.
func (e *statsStream) waitForStats() {
	if len(e.queue) > 0 || e.all {
		e.addStats()
		return
	}
	ctx, cancel := context.WithTimeout(e.ctx, e.silence)
	defer cancel()
	err := e.take(ctx)
	e.ended = e.ctx.Err() != nil || err != nil && ctx.Err() == nil
}

// take takes what changed into the queue, and waits for it if there is nothing yet.
func (e *statsStream) take(ctx context.Context) error {
	if t, ok := e.server.cfg.Store.Catalog.Tenant(e.tenant); ok && t.Suspended {
		return t.Refusal()
	}
	docs, all, version, changed, err := e.feed.since(e.version)
	if err != nil {
		return err
	}
	if version > e.version {
		e.queue, e.all, e.version = docs, all, version
		return nil
	}
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-e.ctx.Done():
		return e.ctx.Err()
	}
}

// statsInEvent is the most types in one event.
const statsInEvent = 200

// addStats adds an event with the first part of the queue.
func (e *statsStream) addStats() {
	n := min(len(e.queue), statsInEvent)
	docs := make([][]byte, n)
	for i, d := range e.queue[:n] {
		docs[i] = d.doc
	}
	kind := "stats"
	if e.all {
		kind = "all"
	}
	doc := append(bytes.Join(docs, []byte(",")), "]}\n"...)
	e.add("event: "+kind+"\ndata: {\"data\":[", doc)
	if e.queue, e.all = e.queue[n:], false; len(e.queue) == 0 {
		e.queue = nil
	}
}
