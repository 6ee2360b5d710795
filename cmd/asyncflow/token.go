package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
)

// tokenCmd groups the commands for tokens.
type tokenCmd struct {
	Create tokenCreateCmd `cmd:"" help:"Create a token and print it."`
	List   tokenListCmd   `cmd:"" help:"List the tokens that were made and are valid."`
	Revoke tokenRevokeCmd `cmd:"" help:"Have all nodes refuse a token."`
}

type tokenCreateCmd struct {
	Tenant  string `placeholder:"NAME" help:"Tenant that the token is for."`
	Admin   bool
	Scope   []string      `placeholder:"SCOPE"`
	TTL     time.Duration `default:"1h"`
	Subject string        `default:"cli" help:"Whose token it is, for the audit."`
	Claimer []string      `placeholder:"NAME" help:"Names for claims; NAME* for all that begin so."`
	Label   []string      `placeholder:"NAME=VALUE" help:"Label of its claimers, instead of theirs."`
	Types   []string      `placeholder:"TYPE[/STAGE]" help:"From where alone it may claim."`
	List    bool          `default:"true" negatable:"" help:"List it in the database."`
}

// defaultScopes are the scopes of a tenant's token if none are given.
var defaultScopes = []string{"submit", "read", "operate", "manage"}

func (c *tokenCreateCmd) Help() string {
	return `One of these environment variables gives the key that signs the token:

    ASYNCFLOW_JWT_SECRET             a secret
    ASYNCFLOW_JWT_SECRET_FILE        a file of secrets, of which the first one signs
    ASYNCFLOW_JWT_PRIVATE_KEY_FILE   a file with a private key (PEM); see asyncflow keys generate

ASYNCFLOW_JWT_ISSUER, ASYNCFLOW_JWT_AUDIENCE, ASYNCFLOW_JWT_TYPE and ASYNCFLOW_JWT_ADMIN_TYPE
must be the same as on the server. Without any of them, the key of a running asyncflow dev signs.
Standard output gets nothing but the token.

If DATABASE_URL names the database, or asyncflow dev runs, the token is listed there: see asyncflow
token list. The database gets its id, never the token.

A tenant's token can't make an operator's calls, whatever its scopes, and an operator's token
can't make a tenant's calls.

Examples:

    export ASYNCFLOW_TOKEN=$(asyncflow token create --tenant acme --scope submit,read --ttl 8h)
    asyncflow token create --tenant acme --scope work --subject anna --claimer 'anna*'
    asyncflow token create --admin --subject alice --ttl 15m`
}

// Run creates a token.
func (c *tokenCreateCmd) Run(ctx context.Context, g *globals) error {
	if err := c.check(); err != nil {
		return usageError(err)
	}
	cfg, err := signingConfig(c.getenv(g))
	if err != nil {
		return usageError(err)
	}
	issuer, err := auth.NewIssuer(cfg)
	if err != nil {
		return usageError(fmt.Errorf("the signing key: %w", err))
	}
	token, err := c.issue(issuer)
	if err != nil {
		return usageError(err)
	}
	if db := c.database(g); c.List && db.DatabaseURL != "" {
		if err := noteToken(ctx, db, token, c.Admin); err != nil {
			return fmt.Errorf("the token can't be listed in the database of DATABASE_URL "+
				"(--no-list makes one that isn't): %w", err)
		}
	}
	_, err = fmt.Fprintln(g.stdout, token)
	return err
}

// getenv returns the environment, with the key of a running dev server if there is no other.
func (c *tokenCreateCmd) getenv(g *globals) func(string) string {
	if hasKey(g) {
		return g.getenv
	}
	secret, _ := devSetting("jwt", g.env, g.stderr)
	return func(name string) string {
		if text, ok := secret.(string); ok && name == signingVariables[0] {
			return text
		}
		return g.getenv(name)
	}
}

// hasKey reports whether there is a key that signs tokens in the environment.
func hasKey(g *globals) bool {
	return slices.ContainsFunc(signingVariables,
		func(name string) bool { return g.getenv(name) != "" })
}

// database returns the database in which the token is listed: that of the environment or, with the
// key of a running dev server, its own. Without a URL there is none.
func (c *tokenCreateCmd) database(g *globals) databaseFlag {
	db := databaseFlag{DatabaseURL: g.getenv("DATABASE_URL"),
		rolesFlag: rolesFlag{DatabaseRoles: g.getenv("ASYNCFLOW_DATABASE_ROLES")}}
	if db.DatabaseURL == "" && !hasKey(g) {
		url, _ := devSetting("database", g.env, io.Discard)
		db.DatabaseURL, _ = url.(string)
	}
	return db
}

// check refuses flags that describe neither a tenant's token nor an operator's.
func (c *tokenCreateCmd) check() error {
	switch {
	case c.Admin && c.Tenant != "":
		return asyncflow.InvalidField("--admin",
			"must not be given beside --tenant: an operator's token speaks for no tenant")
	case c.Admin && len(c.Scope) > 0:
		return asyncflow.InvalidField("--scope",
			"must not be given beside --admin: an operator's token has the scope admin alone")
	case c.Admin && len(c.Claimer) > 0:
		return asyncflow.InvalidField("--claimer",
			"must not be given beside --admin: an operator's token claims no tasks")
	case c.Admin && len(c.Label)+len(c.Types) > 0:
		return asyncflow.InvalidField("--types",
			"and --label must not be given beside --admin: an operator's token claims no tasks")
	case !c.Admin && c.Tenant == "":
		return asyncflow.InvalidField("--tenant", "must be given, or --admin")
	}
	return nil
}

func (c *tokenCreateCmd) issue(issuer *auth.Issuer) (string, error) {
	if c.Admin {
		return issuer.IssueAdmin(c.Subject, c.TTL, now())
	}
	names := c.Scope
	if len(names) == 0 {
		names = defaultScopes
	}
	scopes := make([]auth.Scope, len(names))
	for i, s := range names {
		scopes[i] = auth.Scope(s)
	}
	labels, err := claimerLabels(c.Label)
	if err != nil {
		return "", err
	}
	return issuer.IssueLimited(c.Tenant, c.Subject, scopes, auth.ClaimLimits{Claimers: c.Claimer,
		Labels: auth.Labels(labels), Stages: c.Types}, c.TTL, now())
}

// signingVariables name the key that signs tokens: one of them is set.
var signingVariables = []string{"ASYNCFLOW_JWT_SECRET", "ASYNCFLOW_JWT_SECRET_FILE",
	"ASYNCFLOW_JWT_PRIVATE_KEY_FILE"}

// signingConfig returns the key and the claims of tokens, from environment variables.
func signingConfig(getenv func(string) string) (auth.Config, error) {
	cfg := auth.DefaultConfig()
	for name, field := range map[string]*string{
		"ASYNCFLOW_JWT_ISSUER":     &cfg.Issuer,
		"ASYNCFLOW_JWT_AUDIENCE":   &cfg.Audience,
		"ASYNCFLOW_JWT_TYPE":       &cfg.TokenType,
		"ASYNCFLOW_JWT_ADMIN_TYPE": &cfg.AdminType,
	} {
		if value := getenv(name); value != "" {
			*field = value
		}
	}
	secret := getenv("ASYNCFLOW_JWT_SECRET")
	secrets := getenv("ASYNCFLOW_JWT_SECRET_FILE")
	file := getenv("ASYNCFLOW_JWT_PRIVATE_KEY_FILE")
	if !oneOf(secret, secrets, file) {
		return cfg, asyncflow.Errorf(asyncflow.CodeInvalid,
			"set one of ASYNCFLOW_JWT_SECRET, ASYNCFLOW_JWT_SECRET_FILE and "+
				"ASYNCFLOW_JWT_PRIVATE_KEY_FILE: tokens are signed with it")
	}
	if file == "" {
		cfg.HMACSecret, cfg.HMACSecretFile = []byte(secret), secrets
		return cfg, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return cfg, asyncflow.Errorf(asyncflow.CodeInvalid, "ASYNCFLOW_JWT_PRIVATE_KEY_FILE: %v",
			err)
	}
	cfg.PrivateKey = pem
	return cfg, nil
}
