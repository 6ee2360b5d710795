package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/ratelimit"
	"github.com/asyncflow/asyncflow/store"
)

// Bounds of the test deliveries of a node. Each may read an answer of as many bytes as a real one.
const (
	maxTests          = 64 // at once
	maxTestsPerTenant = 4  // at once
	testsPerSecond    = 1  // of a tenant
)

// TestEndpoint sends an endpoint a test delivery. It changes nothing of the endpoint.
func (s *Server) TestEndpoint(
	ctx context.Context, r TestEndpointRequestObject,
) (TestEndpointResponseObject, error) {
	doc := json.RawMessage(`{}`)
	if r.Body != nil && r.Body.Context != nil {
		doc = r.Body.Context
	}
	err := asyncflow.CheckDocument("context", doc, s.cfg.MaxContext)
	if err != nil {
		return nil, err
	}
	if err = checkContext(doc, s.contextQuota(ctx)); err != nil {
		return nil, err
	}
	id, err := endpointID(r.ID)
	if err != nil {
		return nil, err
	}
	tenant := principalOf(ctx).Tenant
	e, err := s.cfg.Store.Endpoint(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	store.AuditedCallOf(ctx).Note("type", e.Type)
	store.AuditedCallOf(ctx).Note("stage", e.Stage)
	d, err := s.testDelivery(ctx, tenant, e, doc)
	if err != nil {
		return nil, err
	}
	if err := s.limitTests(tenant); err != nil {
		return nil, err
	}
	defer s.tests.Give(tenant, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A node that stops waits less long for its calls than a test may take.
	defer context.AfterFunc(s.stopping, cancel)()
	t := s.cfg.Sender.Test(ctx, d)
	store.AuditedCallOf(ctx).Note("outcome", string(t.Outcome.Kind))
	return TestEndpoint200JSONResponse(testOut(t)), nil
}

// testDelivery returns a delivery to an endpoint, if it may get any.
func (s *Server) testDelivery(
	ctx context.Context, tenant string, e asyncflow.Endpoint, doc json.RawMessage,
) (d asyncflow.Delivery, err error) {
	t, err := s.cfg.Store.Catalog.Fresh(ctx, tenant, e.Type)
	if err != nil {
		return d, err
	}
	at := t.StageIndex(e.Stage)
	switch {
	case e.Listens():
		err = asyncflow.Errorf(asyncflow.CodeConflict,
			"the endpoint is for listening: it has no URL "+
				"that a delivery could be sent to; submit a task instead")
	case !e.Proven():
		err = asyncflow.Errorf(asyncflow.CodeConflict, "the endpoint is unverified, and gets no "+
			"deliveries before it has echoed a challenge: POST /v1/endpoints/%s/verify", e.ID)
	case at < 0:
		err = asyncflow.Errorf(asyncflow.CodeConflict, "the type %s has no stage %s any more",
			e.Type, e.Stage)
	}
	if err != nil {
		return d, err
	}
	now := s.cfg.Store.Clock.Now()
	stage := t.Stages[at]
	lease := []asyncflow.Lease{{ID: callbacks.TestID(e.Type), Seq: 1, Stage: e.Stage, Attempt: 1,
		Context: doc}}
	if _, err = s.cfg.Store.ReadPast(ctx, t, lease, asyncflow.MaxDeliverBytes); err != nil {
		return d, err
	}
	return asyncflow.Delivery{
		Tenant:      tenant,
		Lease:       lease[0],
		Endpoint:    &e,
		MaxAttempts: t.MaxAttempts(e.Stage, asyncflow.Options{}),
		At:          now,
		Timeout:     min(stage.Timeout.Std(), callbacks.TestTime),
		Deadline:    now.Add(stage.MaxProcessingTime.Std()),
		Links:       t.LinksAfter(e.Stage),
	}, nil
}

// limitTests takes one of a tenant's slots for test deliveries, or refuses it.
func (s *Server) limitTests(tenant string) error {
	if err := s.tests.Take(tenant, 1); err != nil {
		return err
	}
	_, wait := s.testRates.Take(tenant, testsPerSecond, 1, time.Now())
	if wait == 0 {
		return nil
	}
	s.tests.Give(tenant, 1)
	return &asyncflow.Error{Code: asyncflow.CodeRateLimited, RetryAfter: wait,
		Message: fmt.Sprintf("a tenant has %d test delivery per second on a node; try again in "+
			"%d s",
			testsPerSecond, ratelimit.WholeSeconds(wait))}
}

func testOut(t callbacks.Tested) api.EndpointTestResult {
	out := api.EndpointTestResult{
		Outcome:    api.EndpointTestResultOutcome(t.Outcome.Kind),
		Error:      t.Outcome.Error,
		RetryAfter: asyncflow.NewDuration(t.Outcome.RetryAfter),
		DurationMs: float32(t.Outcome.Duration.Seconds() * 1000),
	}
	if t.URL != "" {
		out.Request = api.EndpointTestRequest{Method: http.MethodPost, URL: t.URL,
			Headers: t.Headers, Body: t.Body}
	}
	if a := t.Answer; a.Status != 0 {
		out.Response = api.EndpointTestResponse{Status: a.Status, Headers: a.Headers, Body: a.Body,
			Truncated: a.Truncated}
	}
	return out
}
