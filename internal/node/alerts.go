package node

import (
	"context"

	"github.com/google/uuid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/store"
)

// OperatorAlerts says where the operator's alerts go. The tenant asyncflow.OperatorTenant
// must exist.
type OperatorAlerts struct {
	URL    string // "": there are none
	Secret string // that signs them: whsec_ and base64
}

// setUp registers the endpoint of the operator's alerts. It leaves one that is already as
// configured, and rules that were added to it.
func (o OperatorAlerts) setUp(ctx context.Context, s *store.Store, keys *callbacks.Keys) error {
	if o.URL == "" {
		return nil
	}
	a, err := s.Alerts(ctx, asyncflow.OperatorTenant)
	switch {
	case err == nil:
		if a.Endpoint.URL == o.URL && signsWith(a.Endpoint, o.Secret, keys) {
			return nil
		}
	case asyncflow.CodeOf(err) == asyncflow.CodeNotFound:
		a.Endpoint.ID = uuid.Must(uuid.NewV7()).String()
	default:
		return err
	}
	secret, err := keys.SigningSecret(o.Secret, a.Endpoint.ID, s.Clock.Now())
	if err != nil {
		return err
	}
	a.Endpoint.URL, a.Endpoint.Secrets = o.URL, []asyncflow.SigningSecret{secret}
	a.Endpoint.Challenged = false // the operator vouches for it
	_, err = s.PutAlerts(ctx, asyncflow.OperatorTenant, a)
	return err
}

// signsWith reports whether an endpoint's newest secret is the given one.
func signsWith(e asyncflow.Endpoint, secret string, keys *callbacks.Keys) bool {
	if len(e.Secrets) == 0 {
		return false
	}
	kept, err := keys.Open(e.Secrets[0].Sealed, e.ID)
	return err == nil && kept == secret
}
