package main

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/internal/signing"
	"github.com/asyncflow/asyncflow/store"
)

// alertFlags say where the operator's alerts go.
type alertFlags struct {
	AlertURL    string `name:"alert-url" env:"ASYNCFLOW_ALERT_URL" placeholder:"URL" help:"Where the operator's alerts go: a node that is gone, a job or a roll that is overdue."`
	AlertSecret string `name:"alert-secret" env:"ASYNCFLOW_ALERT_SECRET" help:"What they are signed with: whsec_ and the base64 of 24 to 64 bytes. Set it by the environment."`
}

// check tells which flag is wrong.
func (f alertFlags) check(egress asyncflow.Egress) error {
	if f.AlertURL == "" {
		return nil
	}
	e := asyncflow.Endpoint{Type: asyncflow.AlertType, Stage: asyncflow.AlertStage, URL: f.AlertURL}
	if err := rename("--alert-url", e.Validate(egress)); err != nil {
		return err
	}
	return rename("ASYNCFLOW_ALERT_SECRET", signing.CheckSecret(f.AlertSecret))
}

// rename gives the fields of an error the name of a flag.
func rename(flag string, err error) error {
	if known := new(asyncflow.Error); errors.As(err, &known) && len(known.Fields) > 0 {
		return asyncflow.InvalidField(flag, "%s", known.Fields[0].Message)
	}
	return err
}

// createTenant makes the operator's tenant, if there are alerts for it.
func (f alertFlags) createTenant(ctx context.Context, database store.Config) error {
	if f.AlertURL == "" {
		return nil
	}
	created, err := store.CreateTenant(ctx, database.URL, asyncflow.OperatorTenant, store.WithoutRoles(database.NoRoles))
	if err != nil || !created {
		return err
	}
	b := byHand{url: database.URL, action: "tenant.create", objectType: "tenant", object: asyncflow.OperatorTenant}
	return b.do(ctx, func() error { return nil })
}

// setUp sets up the operator's alerts. What is so already is left as it is, and so are
// rules of a tenant's that were added.
func (f alertFlags) setUp(ctx context.Context, s *store.Store, keys *callbacks.Keys) error {
	if f.AlertURL == "" {
		return nil
	}
	a, err := s.Alerts(ctx, asyncflow.OperatorTenant)
	switch {
	case err == nil:
		if a.Endpoint.URL == f.AlertURL && signsWith(a.Endpoint, f.AlertSecret, keys) {
			return nil
		}
	case asyncflow.CodeOf(err) == asyncflow.CodeNotFound:
		a.Endpoint.ID = uuid.Must(uuid.NewV7()).String()
	default:
		return err
	}
	secret, err := keys.SigningSecret(f.AlertSecret, a.Endpoint.ID, s.Clock.Now())
	if err != nil {
		return err
	}
	a.Endpoint.URL, a.Endpoint.Secrets, a.Endpoint.Challenged = f.AlertURL, []asyncflow.SigningSecret{secret}, false // the operator knows whose it is
	_, err = s.PutAlerts(ctx, asyncflow.OperatorTenant, a)
	return err
}

// signsWith tells whether an endpoint's newest secret is this one.
func signsWith(e asyncflow.Endpoint, secret string, keys *callbacks.Keys) bool {
	if len(e.Secrets) == 0 {
		return false
	}
	kept, err := keys.Open(e.Secrets[0].Sealed, e.ID)
	return err == nil && kept == secret
}
