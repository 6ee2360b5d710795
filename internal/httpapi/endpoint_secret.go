package httpapi

import (
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/signing"
)

// RotateEndpointSecret gives an endpoint a new signing secret.
func (s *Server) RotateEndpointSecret(
	ctx context.Context, r RotateEndpointSecretRequestObject,
) (RotateEndpointSecretResponseObject, error) {
	id, err := endpointID(r.ID)
	if err != nil {
		return nil, err
	}
	var p api.SecretRotation
	if r.Body != nil {
		p = *r.Body
	}
	var shown string
	change := func(e *asyncflow.Endpoint) (err error) {
		shown, err = s.rotate(e, p)
		return err
	}
	e, err := s.cfg.Store.ChangeEndpoint(ctx, principalOf(ctx).Tenant, id, change)
	out, err := s.endpointAnswer(ctx, e, err)
	out.Secret = shown
	return RotateEndpointSecret200JSONResponse(out), err
}

func (s *Server) rotate(e *asyncflow.Endpoint, p api.SecretRotation) (shown string, err error) {
	overlap := asyncflow.DefaultOverlap
	if p.Overlap != nil {
		overlap = p.Overlap.Std()
	}
	if p.Kind == "" && p.Secret == "" && len(e.Secrets) > 0 {
		p.Kind = e.Secrets[0].Kind
	}
	for _, old := range e.Secrets {
		if secret, err := s.cfg.Keys.Open(old.Sealed, e.ID); err == nil && secret == p.Secret {
			return "", asyncflow.InvalidField("secret", "is one that the endpoint has already")
		}
	}
	shown, next, err := s.newSecret(e.ID, p.Secret, p.Kind, "kind")
	if err != nil {
		return "", err
	}
	return shown, e.Rotate(next, overlap, s.cfg.Store.Clock.Now())
}

// newSecret returns a signing secret as the answer shows it and as the store keeps it. It is the
// given one, or a new one of a kind. A private key is never shown.
func (s *Server) newSecret(
	endpoint, given string, kind asyncflow.SecretKind, field string,
) (shown string, kept asyncflow.SigningSecret, err error) {
	secret := given
	if secret == "" {
		if secret, err = signing.NewSecretOf(kind); err != nil {
			return "", kept, err
		}
	}
	kept, err = s.cfg.Keys.SigningSecret(secret, endpoint, s.cfg.Store.Clock.Now())
	if err != nil {
		return "", kept, err
	}
	if kind != "" && kind != kept.Kind {
		return "", kept, asyncflow.InvalidField(field, "is %s, but the secret is of the kind %s",
			kind, kept.Kind)
	}
	if kept.Kind != asyncflow.SecretHMAC {
		return "", kept, nil
	}
	return secret, kept, nil
}

// VerifyEndpoint challenges an endpoint. One for listening needs no challenge: it stays as it is.
func (s *Server) VerifyEndpoint(
	ctx context.Context, r VerifyEndpointRequestObject,
) (VerifyEndpointResponseObject, error) {
	id, err := endpointID(r.ID)
	if err != nil {
		return nil, err
	}
	tenant := principalOf(ctx).Tenant
	e, err := s.cfg.Store.Endpoint(ctx, tenant, id)
	if err == nil && !e.Listens() {
		e, err = s.challenge(ctx, tenant, e)
	}
	out, err := s.endpointAnswer(ctx, e, err)
	return VerifyEndpoint200JSONResponse(out), err
}

// challenge challenges an endpoint, and returns the endpoint with the result.
func (s *Server) challenge(
	ctx context.Context, tenant string, e asyncflow.Endpoint,
) (asyncflow.Endpoint, error) {
	var failure string
	if err := s.cfg.Sender.Challenge(ctx, tenant, e, s.cfg.Store.Clock.Now()); err != nil {
		failure = err.Error()
	}
	return s.cfg.Store.ChangeEndpoint(ctx, tenant, e.ID, func(now *asyncflow.Endpoint) error {
		now.Judge(e.URL, failure, s.cfg.Store.Clock.Now(), s.cfg.VerifyEndpoints)
		return nil
	})
}
