package httpapi

import (
	"context"
	"net/http"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"

	"github.com/asyncflow/asyncflow"
)

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
