package main

import (
	"context"
	"errors"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/node"
	"github.com/asyncflow/asyncflow/internal/signing"
	"github.com/asyncflow/asyncflow/store"
)

// alertFlags set the destination of the operator's alerts.
type alertFlags struct {
	AlertURL    string `env:"ASYNCFLOW_ALERT_URL" placeholder:"URL"`
	AlertSecret string `env:"ASYNCFLOW_ALERT_SECRET"`
}

// check names the flag that is wrong.
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

// rename replaces the field in an error by the name of a flag.
func rename(flag string, err error) error {
	if known := new(asyncflow.Error); errors.As(err, &known) && len(known.Fields) > 0 {
		return asyncflow.InvalidField(flag, "%s", known.Fields[0].Message)
	}
	return err
}

// createTenant creates the operator's tenant, if alerts are set.
func (f alertFlags) createTenant(ctx context.Context, database store.Config) error {
	if f.AlertURL == "" {
		return nil
	}
	created, err := store.CreateTenant(ctx, database.URL, asyncflow.OperatorTenant,
		store.WithoutRoles(database.NoRoles))
	if err != nil || !created {
		return err
	}
	b := auditedCommand{url: database.URL, action: "tenant.create", objectType: "tenant",
		object: asyncflow.OperatorTenant}
	return b.do(ctx, func() error { return nil })
}

// operatorAlerts returns the flags as a node takes them.
func (f alertFlags) operatorAlerts() node.OperatorAlerts {
	return node.OperatorAlerts{URL: f.AlertURL, Secret: f.AlertSecret}
}
