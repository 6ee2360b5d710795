package main

import (
	"strings"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/console"
)

// consoleFlags set up the web console and its login at an issuer.
type consoleFlags struct {
	Console       bool   `env:"ASYNCFLOW_CONSOLE" default:"true" negatable:""`
	InstanceName  string `env:"ASYNCFLOW_INSTANCE_NAME" placeholder:"NAME"`
	InstanceColor string `env:"ASYNCFLOW_INSTANCE_COLOR" placeholder:"#RRGGBB"`

	OIDCIssuer       string   `env:"ASYNCFLOW_OIDC_ISSUER" placeholder:"URL"`
	OIDCClientID     string   `env:"ASYNCFLOW_OIDC_CLIENT_ID" placeholder:"ID"`
	OIDCClientSecret string   `env:"ASYNCFLOW_OIDC_CLIENT_SECRET"`
	OIDCScopes       []string `env:"ASYNCFLOW_OIDC_SCOPES" default:"openid"`
	OIDCToken        string   `env:"ASYNCFLOW_OIDC_TOKEN" enum:"id,access" default:"id"`
}

// config returns the console of a node with a public URL, "" if it isn't set; nil: there is none.
func (f consoleFlags) config(publicURL string) (*console.Config, error) {
	if !f.Console {
		return nil, nil
	}
	cfg := &console.Config{
		Instance: console.Instance{Name: f.InstanceName, Color: f.InstanceColor},
		OIDC: console.OIDC{Issuer: f.OIDCIssuer, ClientID: f.OIDCClientID,
			ClientSecret: f.OIDCClientSecret, Token: f.OIDCToken},
	}
	for _, scopes := range f.OIDCScopes { // issuers write them with spaces between
		cfg.OIDC.Scopes = append(cfg.OIDC.Scopes, strings.Fields(scopes)...)
	}
	if err := cfg.Instance.Check(); err != nil {
		return nil, renamed(err, "--", nil)
	}
	if err := cfg.OIDC.Check(); err != nil {
		return nil, renamed(err, "--", nil)
	}
	if f.OIDCIssuer != "" && publicURL == "" {
		return nil, asyncflow.InvalidField("--public-url",
			"is required with --oidc-issuer, which sends browsers back there")
	}
	return cfg, nil
}
