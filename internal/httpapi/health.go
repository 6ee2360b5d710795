package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"

	"github.com/asyncflow/asyncflow"
)

// Health reports that the process is alive.
func (s *Server) Health(context.Context, HealthRequestObject) (HealthResponseObject, error) {
	return Health200JSONResponse{Status: "ok", Version: s.cfg.Version}, nil
}

// readyTimeout bounds the check of the database.
const readyTimeout = 2 * time.Second

// failedPatience is how long a caller waits for a check of the database after one that failed.
const failedPatience = 100 * time.Millisecond

// errDraining is the answer of a node that is about to stop. It is no failure, so it isn't in the
// log.
var errDraining = asyncflow.Errorf(asyncflow.CodeUnavailable,
	"the node is stopping: send requests to another one")

// Ready reports whether the node can take requests now. Callers share the check of the database,
// because anyone may ask.
func (s *Server) Ready(ctx context.Context, _ ReadyRequestObject) (ReadyResponseObject, error) {
	if s.draining.Load() {
		return nil, errDraining
	}
	if err := s.reachable(ctx); err != nil {
		// The error itself names the address of the database, which not everybody may see.
		return nil, &asyncflow.Error{Code: asyncflow.CodeUnavailable, Err: err,
			Message: "the database can't be reached, takes no writes, or its schema is not current"}
	}
	if err := s.cfg.Verifier.Ready(); err != nil { // callers with their tokens would be refused
		return nil, err
	}
	return Ready200JSONResponse{Status: "ok", Version: s.cfg.Version}, nil
}

// pinged is the result of a check of the database.
type pinged struct {
	err error
	at  time.Time
}

// reachable returns why the database can't be used; nil: it can. If the last check just failed, and
// the next one takes long, it returns the last error: callers don't keep their connections for as
// long as the database is silent.
func (s *Server) reachable(ctx context.Context) error {
	last := s.lastPing.Load()
	if last == nil || last.err == nil || time.Since(last.at) > 2*readyTimeout {
		_, err := s.pings.Get(ctx)
		return err
	}
	prompt, cancel := context.WithTimeout(ctx, failedPatience)
	defer cancel()
	_, err := s.pings.Get(prompt)
	if err != nil && prompt.Err() != nil {
		return last.err
	}
	return err
}

// ping checks the database.
func (s *Server) ping(ctx context.Context) (struct{}, error) {
	err := s.cfg.Store.Ping(ctx)
	s.lastPing.Store(&pinged{err, time.Now()})
	return struct{}{}, err
}

// Metrics returns the metrics of the node.
func (s *Server) Metrics(context.Context, MetricsRequestObject) (MetricsResponseObject, error) {
	if s.cfg.Metrics == nil {
		return nil, asyncflow.Errorf(asyncflow.CodeNotFound,
			"this node has no metrics here: they are off, or at an address of their own")
	}
	return metricsResponse{s.cfg.Metrics}, nil
}

// metricsResponse is an answer that another handler writes.
type metricsResponse struct{ http.Handler }

// VisitMetricsResponse writes the answer.
func (r metricsResponse) VisitMetricsResponse(c *fiber.Ctx) error {
	if err := adaptor.HTTPHandler(r.Handler)(c); err != nil {
		return err
	}
	if c.Response().StatusCode() >= http.StatusInternalServerError {
		c.Response().Reset()
		return asyncflow.Errorf(asyncflow.CodeUnavailable, "the metrics can't be read")
	}
	return nil
}
