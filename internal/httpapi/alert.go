package httpapi

import (
	"context"

	"github.com/google/uuid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// PutAlerts sets where a tenant's alerts go, and their rules.
func (s *Server) PutAlerts(
	ctx context.Context, r PutAlertsRequestObject,
) (PutAlertsResponseObject, error) {
	tenant := principalOf(ctx).Tenant
	e := asyncflow.Endpoint{Type: asyncflow.AlertType, Stage: asyncflow.AlertStage, URL: r.Body.URL}
	if err := e.Validate(s.cfg.Egress); err != nil {
		return nil, err
	}
	if err := r.Body.Rules.Validate(); err != nil {
		return nil, err
	}
	old, err := s.cfg.Store.Alerts(ctx, tenant)
	if err != nil && asyncflow.CodeOf(err) != asyncflow.CodeNotFound {
		return nil, err
	}
	e.ID, e.Challenged = old.Endpoint.ID, s.cfg.VerifyEndpoints
	e.AllowDuplicate = old.Endpoint.URL == e.URL
	if len(old.Endpoint.Outbound) > 0 && !asyncflow.SameOrigin(old.Endpoint.URL, e.URL) {
		return nil, asyncflow.InvalidField("url", "has another scheme, host or port than the one "+
			"that the endpoint's headers and auth were given for: "+
			"change it with PATCH /v1/endpoints/%s", e.ID)
	}
	if e.ID == "" {
		e.ID = uuid.Must(uuid.NewV7()).String()
	}
	var secret string
	if r.Body.Secret != "" || old.Endpoint.ID == "" {
		var kept asyncflow.SigningSecret
		if secret, kept, err = s.newSecret(e.ID, r.Body.Secret, "", "secret"); err != nil {
			return nil, err
		}
		e.Secrets = []asyncflow.SigningSecret{kept}
	}
	now, err := s.cfg.Store.PutAlerts(withPrecondition(ctx), tenant,
		store.Alerts{Endpoint: e, Rules: r.Body.Rules})
	if err == nil && s.cfg.VerifyEndpoints && !now.Endpoint.Proven() {
		now.Endpoint, err = s.challenge(ctx, tenant, now.Endpoint)
	}
	if err != nil {
		return nil, err
	}
	setETag(ctx, now.ETag())
	out, err := s.alertsOut(ctx, tenant, now)
	out.Secret = secret
	return PutAlerts200JSONResponse(out), err
}

// GetAlerts returns where a tenant's alerts go, and their episodes.
func (s *Server) GetAlerts(
	ctx context.Context, _ GetAlertsRequestObject,
) (GetAlertsResponseObject, error) {
	tenant := principalOf(ctx).Tenant
	a, err := s.cfg.Store.Alerts(ctx, tenant)
	if err != nil {
		return nil, err
	}
	setETag(ctx, a.ETag())
	out, err := s.alertsOut(ctx, tenant, a)
	return GetAlerts200JSONResponse(out), err
}

// GetFiringAlerts returns the episodes that go on.
func (s *Server) GetFiringAlerts(
	ctx context.Context, _ GetFiringAlertsRequestObject,
) (GetFiringAlertsResponseObject, error) {
	firing, enabled, err := s.cfg.Store.FiringEpisodes(ctx, principalOf(ctx).Tenant)
	out := api.FiringAlerts{Enabled: enabled, Data: make([]api.AlertEpisode, len(firing))}
	for i, e := range firing {
		out.Data[i] = episodeOut(e)
	}
	return GetFiringAlerts200JSONResponse(out), err
}

// DeleteAlerts turns a tenant's alerts off.
func (s *Server) DeleteAlerts(
	ctx context.Context, _ DeleteAlertsRequestObject,
) (DeleteAlertsResponseObject, error) {
	err := s.cfg.Store.DeleteAlerts(withPrecondition(ctx), principalOf(ctx).Tenant)
	return DeleteAlerts204Response{}, err
}

func (s *Server) alertsOut(ctx context.Context, tenant string, a store.Alerts) (api.Alerts, error) {
	episodes, err := s.cfg.Store.Episodes(ctx, tenant)
	out := api.Alerts{
		URL:               a.Endpoint.URL,
		Endpoint:          a.Endpoint.ID,
		VerificationError: a.Endpoint.VerificationError,
		Rules:             a.Rules,
		UpdatedAt:         a.UpdatedAt,
		Episodes:          make([]api.AlertEpisode, len(episodes)),
	}
	for i, e := range episodes {
		out.Episodes[i] = episodeOut(e)
	}
	return out, err
}

func episodeOut(e asyncflow.Episode) api.AlertEpisode {
	out := api.AlertEpisode{
		ID:         e.ID,
		Alert:      api.AlertEpisodeAlert(e.Alert),
		Subject:    e.Subject,
		State:      api.AlertEpisodeState(asyncflow.AlertFiring),
		Since:      e.Since,
		ResolvedAt: e.Resolved,
		Value:      e.Value,
		Limit:      e.Limit,
		WaitsFor:   e.WaitsFor,
	}
	if d := e.Detail; d != nil {
		out.Within, out.P50, out.Keys, out.BlockedKeys = d.Within, d.P50, d.Keys, d.BlockedKeys
		out.Task = d.Task
	}
	if !e.Resolved.IsZero() {
		out.State = api.AlertEpisodeState(asyncflow.AlertResolved)
	}
	for _, task := range []string{e.FiringTask, e.ResolvedTask} {
		if task != "" {
			out.Tasks = append(out.Tasks, task)
		}
	}
	return out
}
