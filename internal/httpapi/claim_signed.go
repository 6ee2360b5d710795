package httpapi

import (
	"context"
	"encoding/json"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/store"
)

// answerSigned is answerClaims with the headers of pushes. The deadlines are as for pushes, too: a
// program that passes deliveries on sends a heartbeat first.
func (s *Server) answerSigned(c *fiber.Ctx, tenant string, all []asyncflow.Delivery) error {
	doc := []byte(`{"claims":[`)
	headers := []byte(`],"headers":[`)
	for i := range all {
		if i > 0 {
			doc = append(doc, ',')
			headers = append(headers, ',')
		}
		d := &all[i]
		d.Deadline = d.Latest
		begin := len(doc)
		doc = s.cfg.Sender.AppendDelivery(doc, d)
		signed, err := s.signClaim(tenant, d, doc[begin:])
		if err != nil {
			s.cfg.Committer.ReleaseClaims(tenant, leasesOf(all), "they could not be signed")
			return err
		}
		headers = append(headers, signed...)
	}
	doc = append(append(doc, headers...), "]}\n"...)
	return s.writeClaims(c, tenant, all, doc)
}

// signClaim returns the headers as for a push of a delivery, in JSON. The stage's endpoint for
// listening signs it.
func (s *Server) signClaim(
	tenant string, d *asyncflow.Delivery, body []byte,
) ([]byte, error) {
	t, err := s.cfg.Store.Catalog.Type(tenant, d.Lease.ID.Type)
	if err != nil {
		return nil, err
	}
	e, err := listenerOf(t, d.Lease.Stage)
	if err != nil {
		return nil, err
	}
	headers, err := s.cfg.Sender.SignClaim(d, e, body)
	if err != nil {
		return nil, err
	}
	return json.Marshal(headers)
}

// listenerOf returns the endpoint for listening that signs the deliveries of a stage.
func listenerOf(t *store.Type, stage string) (*asyncflow.Endpoint, error) {
	for _, e := range t.Endpoints(stage) {
		if e.Listens() && e.Serves() {
			return &e, nil
		}
	}
	return nil, asyncflow.Errorf(asyncflow.CodeConflict,
		"stage %s of %s has no endpoint for listening: nothing signs its deliveries", stage, t.Name)
}

// maySign refuses a call for signed deliveries that nothing would sign, before it claims any.
func (s *Server) maySign(ctx context.Context, tenant, name, stage string) error {
	t, err := s.cfg.Store.Catalog.Fresh(ctx, tenant, name)
	if err != nil {
		return err
	}
	_, err = listenerOf(t, stage)
	return err
}

// AnswerClaim settles a claimed task by the answer of the worker that it was passed on to.
func (s *Server) AnswerClaim(
	ctx context.Context, r AnswerClaimRequestObject,
) (AnswerClaimResponseObject, error) {
	b := r.Body
	if b.Status == 0 && b.Error == "" {
		return nil, asyncflow.InvalidField("status",
			"is required, unless error says why there is none")
	}
	a, err := s.attemptOf(ctx)
	if err != nil {
		return nil, err
	}
	if a.Claimer == "" {
		return nil, s.pushed(ctx)
	}
	o := s.cfg.Sender.ReadClaim(callbacks.Answer{Status: b.Status, ContentType: b.ContentType,
		RetryAfter: b.RetryAfter, Body: b.Body, Error: b.Error})
	if o.Kind == asyncflow.OutcomeAccepted { // the worker will report
		stands, err := s.extendClaim(ctx, a)
		if err == nil && !stands {
			err = s.ended(ctx, a)
		}
		return AnswerClaim200JSONResponse{Status: asyncflow.StatusRunning}, err
	}
	status, err := s.report(ctx, o)
	return AnswerClaim200JSONResponse{Status: status}, err
}
