package main

import (
	"fmt"
	"os"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
)

// tokenCmd makes tokens.
type tokenCmd struct {
	Create tokenCreateCmd `cmd:"" help:"Make a token and print it."`
}

type tokenCreateCmd struct {
	Tenant  string        `required:"" placeholder:"NAME" help:"Tenant that the token is for."`
	Scope   []string      `default:"submit,read,manage" help:"What it allows: submit, read, work, manage, admin."`
	TTL     time.Duration `name:"ttl" default:"1h" help:"How long it is good."`
	Subject string        `default:"cli" help:"Whose token it is, for the audit."`
}

// Help is shown by asyncflow token create --help.
func (c *tokenCreateCmd) Help() string {
	return `The token is signed with the secret in ASYNCFLOW_JWT_SECRET, or with the private key (PEM) in the file that
ASYNCFLOW_JWT_PRIVATE_KEY_FILE names. ASYNCFLOW_JWT_ISSUER, ASYNCFLOW_JWT_AUDIENCE and ASYNCFLOW_JWT_TYPE must
be those of the server. Nothing but the token goes to standard output.

Example:

    export ASYNCFLOW_TOKEN=$(asyncflow token create --tenant acme --scope submit,read --ttl 8h)`
}

// Run makes a token.
func (c *tokenCreateCmd) Run(g *globals) error {
	cfg, err := signingConfig(g.getenv)
	if err != nil {
		return usageError(err)
	}
	issuer, err := auth.NewIssuer(cfg)
	if err != nil {
		return usageError(fmt.Errorf("the signing key: %w", err))
	}
	scopes := make([]auth.Scope, len(c.Scope))
	for i, s := range c.Scope {
		scopes[i] = auth.Scope(s)
	}
	token, err := issuer.Issue(c.Tenant, c.Subject, scopes, c.TTL, now())
	if err != nil {
		return usageError(err)
	}
	_, err = fmt.Fprintln(g.stdout, token)
	return err
}

// signingConfig returns how to sign tokens, from environment variables.
func signingConfig(getenv func(string) string) (auth.Config, error) {
	cfg := auth.DefaultConfig()
	for name, field := range map[string]*string{
		"ASYNCFLOW_JWT_ISSUER":   &cfg.Issuer,
		"ASYNCFLOW_JWT_AUDIENCE": &cfg.Audience,
		"ASYNCFLOW_JWT_TYPE":     &cfg.TokenType,
	} {
		if value := getenv(name); value != "" {
			*field = value
		}
	}
	secret, file := getenv("ASYNCFLOW_JWT_SECRET"), getenv("ASYNCFLOW_JWT_PRIVATE_KEY_FILE")
	if (secret == "") == (file == "") {
		return cfg, asyncflow.Errorf(asyncflow.CodeInvalid, "set one of ASYNCFLOW_JWT_SECRET and ASYNCFLOW_JWT_PRIVATE_KEY_FILE: tokens are signed with it")
	}
	if file == "" {
		cfg.HMACSecret = []byte(secret)
		return cfg, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return cfg, asyncflow.Errorf(asyncflow.CodeInvalid, "ASYNCFLOW_JWT_PRIVATE_KEY_FILE: %v", err)
	}
	cfg.PrivateKey = pem
	return cfg, nil
}
