package httpapi

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/signing"
	"github.com/asyncflow/asyncflow/store"
)

func onFinalIn(f *api.OnFinal) *asyncflow.OnFinal {
	if f == nil {
		return nil
	}
	return &asyncflow.OnFinal{URL: f.URL, On: f.On, Target: f.Target, Secret: f.Secret}
}

func onFinalOut(f *asyncflow.OnFinal) *api.OnFinal {
	if f == nil {
		return nil
	}
	return &api.OnFinal{URL: f.URL, On: f.On, Target: f.TargetOf()}
}

// findTarget checks where ends are to be told, and names the target. It makes the target unless it
// exists, or the call is a dry run. The secret is in the target then, and nowhere else.
func (s *Server) findTarget(ctx context.Context, f *asyncflow.OnFinal, dry bool) error {
	if f == nil {
		return nil
	}
	if err := f.Check(s.cfg.Egress); err != nil {
		return err
	}
	secret := f.Secret
	f.Secret = ""
	if secret != "" {
		if _, err := signing.NewSigner(secret); err != nil {
			var known *asyncflow.Error
			if errors.As(err, &known) && len(known.Fields) > 0 { // it names the field secret
				return asyncflow.InvalidField("on_final.secret", "%s", known.Fields[0].Message)
			}
			return asyncflow.InvalidField("on_final.secret", "%v", err)
		}
	}
	given := f.Target != ""
	if !given {
		f.Target = asyncflow.TargetName(f.URL, secret)
	}
	tenant := principalOf(ctx).Tenant
	origin := asyncflow.OriginOf(f.URL)
	t, err := s.cfg.Store.Catalog.Fresh(ctx, tenant, f.Target)
	switch {
	case err == nil && t.Notifies != origin:
		return asyncflow.InvalidField("on_final.target", "is %s, which isn't a target for %s",
			f.Target, origin)
	case err == nil:
		return nil
	case asyncflow.CodeOf(err) != asyncflow.CodeNotFound:
		return err
	case given:
		return asyncflow.InvalidField("on_final.target", "is %s, which doesn't exist: leave it "+
			"out, or give the secret", f.Target)
	case dry:
		return nil
	}
	return s.createTarget(ctx, tenant, origin, f, secret)
}

// createTarget makes a target with a given secret; "": with a new one.
func (s *Server) createTarget(
	ctx context.Context, tenant, origin string, f *asyncflow.OnFinal, secret string,
) error {
	n := 0
	for name := range s.cfg.Store.Catalog.TypesOf(tenant) {
		if asyncflow.IsTarget(name) {
			n++
		}
	}
	if n >= asyncflow.MaxTargets { // without a lock
		return asyncflow.TooManyTargets()
	}
	e := asyncflow.Endpoint{ID: uuid.Must(uuid.NewV7()).String(), Type: f.Target, URL: f.URL,
		Stage: asyncflow.TargetStage, Challenged: s.cfg.VerifyEndpoints}
	_, kept, err := s.newSecret(e.ID, secret, "", "secret")
	if err != nil {
		return err
	}
	e.Secrets = []asyncflow.SigningSecret{kept}
	entry := asyncflow.AuditEntry{Origin: asyncflow.AuditFromAPI, Action: "target.create",
		ObjectType: "task_type", Object: f.Target, Status: 201, Outcome: asyncflow.AuditDone}
	setCaller(&entry, principalOf(ctx))
	call := store.NewAuditedCall(tenant, entry)
	call.Note("origin", origin)
	created, err := s.cfg.Store.CreateTarget(store.WithAuditedCall(ctx, call), tenant, origin, e)
	if err != nil || !created {
		return err
	}
	s.log.Info("target of on_final created", "tenant", tenant, "type", f.Target, "origin", origin,
		"by", principalOf(ctx).Subject)
	if e.Challenged {
		_, err = s.challenge(ctx, tenant, e)
	}
	return err
}
