package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/store"
)

// noteToken lists a token that was made.
func noteToken(ctx context.Context, db databaseFlag, token string, admin bool) error {
	d, err := auth.Describe(token)
	if err != nil {
		return err
	}
	kind := auth.KindTenant
	if admin {
		kind = auth.KindOperator
	}
	var limits []byte
	if !d.Limits.IsZero() {
		if limits, err = json.Marshal(d.Limits); err != nil {
			return err
		}
	}
	return withStore(ctx, db, asyncflow.Quotas{}, func(s *store.Store) error {
		return s.NoteToken(ctx, store.Token{Issuer: d.Issuer, ID: d.ID, Kind: string(kind),
			Tenant: d.Tenant, Subject: d.Subject, Scopes: d.Scopes, MadeBy: operatorName(),
			ExpiresAt: d.ExpiresAt, Limits: limits})
	})
}

// tokenOut is a token of a list.
type tokenOut struct {
	ID      string    `json:"id"`
	Issuer  string    `json:"issuer"`
	Kind    string    `json:"kind,omitempty"`
	Tenant  string    `json:"tenant,omitempty"`
	Subject string    `json:"subject,omitempty"`
	Scopes  string    `json:"scopes,omitempty"`
	MadeAt  time.Time `json:"made_at,omitzero"`
	// Limits are what it says about claims; zero: nothing, or an earlier version listed it.
	Limits    auth.ClaimLimits `json:"limits,omitzero"`
	MadeBy    string           `json:"made_by,omitempty"`
	ExpiresAt time.Time        `json:"expires_at"`
	RevokedAt time.Time        `json:"revoked_at,omitzero"`
	RevokedBy string           `json:"revoked_by,omitempty"`
}

func outOf(t store.Token) tokenOut {
	var limits auth.ClaimLimits
	if json.Unmarshal(t.Limits, &limits) != nil {
		limits = auth.ClaimLimits{} // there are none
	}
	return tokenOut{ID: t.ID, Issuer: t.Issuer, Kind: t.Kind, Tenant: t.Tenant, Subject: t.Subject,
		Scopes: t.Scopes, Limits: limits, MadeAt: t.MadeAt, MadeBy: t.MadeBy,
		ExpiresAt: t.ExpiresAt, RevokedAt: t.RevokedAt, RevokedBy: t.RevokedBy}
}

type tokenListCmd struct {
	databaseFlag
	Tenant string `placeholder:"NAME" help:"Only the tokens of this tenant."`
}

func (c *tokenListCmd) Help() string {
	return `The list has the tokens that asyncflow token create and asyncflow dev made with this
database at hand, and revoked ones of any issuer, until they expire. Tokens that an identity
provider made, or sessions of the console that began with one, are not in it.

Examples:

    asyncflow token list --tenant acme
    asyncflow token list -o json | jq -r '.data[] | select(.subject == "anna") | .id'`
}

// tokensPage is how many tokens are read at once.
const tokensPage = 500

// Run lists the tokens.
func (c *tokenListCmd) Run(ctx context.Context, g *globals) error {
	all := []tokenOut{}
	err := withStore(ctx, c.databaseFlag, asyncflow.Quotas{}, func(s *store.Store) error {
		var after store.Token
		for more := true; more; {
			var page []store.Token
			var err error
			if page, more, err = s.TokenPage(ctx, c.Tenant, after, tokensPage); err != nil {
				return err
			}
			for _, t := range page {
				after = t
				all = append(all, outOf(t))
			}
		}
		return nil
	})
	if done, err := g.asDocument(asList(all, ""), err); done {
		return err
	}
	rows := make([][]string, len(all))
	for i, t := range all {
		rows[i] = []string{t.ID, t.Tenant, t.Subject, t.Scopes, timeText(t.MadeAt),
			timeText(t.ExpiresAt), timeText(t.RevokedAt), t.Issuer, t.Limits.String()}
	}
	return g.printTable("ID TENANT SUBJECT SCOPES MADE EXPIRES REVOKED ISSUER LIMITS", rows)
}

type tokenRevokeCmd struct {
	databaseFlag
	ID     string    `arg:"" name:"id" help:"The token's id (jti), or -: its text is on standard input."`
	Issuer string    `env:"ASYNCFLOW_JWT_ISSUER" default:"asyncflow" help:"The token's issuer (iss)."`
	Until  time.Time `placeholder:"TIME" help:"When one that isn't listed expires, at the latest."`
}

func (c *tokenRevokeCmd) Help() string {
	return `All nodes refuse the token within 5 seconds, and end its event streams, waiting calls and
sessions of the console. Reports on deliveries that it claimed are still taken: completion tokens
are of their own. Nothing takes it back: make another token.

A token that isn't listed, such as one of an identity provider, needs --until, or the token itself.

Examples:

    asyncflow token revoke GQVPNUXSNTLH3KVKDTMBYUTWAY
    asyncflow token revoke - < leaked.jwt
    asyncflow token revoke 3f1c --issuer https://login.example.com --until 2026-12-24T00:00:00Z`
}

// Run revokes a token, and shows it.
func (c *tokenRevokeCmd) Run(ctx context.Context, g *globals) error {
	if err := c.read(os.Stdin); err != nil {
		return usageError(err)
	}
	b := auditedCommand{url: c.DatabaseURL, action: "token.revoke", objectType: "token",
		object: c.ID, detail: map[string]any{"issuer": c.Issuer}}
	var t store.Token
	err := b.do(ctx, func() error {
		return withStore(ctx, c.databaseFlag, asyncflow.Quotas{}, func(s *store.Store) (err error) {
			t, err = s.RevokeToken(ctx, c.Issuer, c.ID, c.Until, operatorName())
			return err
		})
	})
	out := outOf(t)
	if done, err := g.asDocument(out, err); done {
		return err
	}
	return g.printFields("id", out.ID, "issuer", out.Issuer, "kind", out.Kind, "tenant", out.Tenant,
		"subject", out.Subject, "scopes", out.Scopes, "limits", out.Limits.String(),
		"made", timeText(out.MadeAt), "made by", out.MadeBy, "expires", timeText(out.ExpiresAt),
		"revoked", timeText(out.RevokedAt), "revoked by", out.RevokedBy)
}

// read reads the token itself, if it is to be read, and refuses what can be no token.
func (c *tokenRevokeCmd) read(in io.Reader) error {
	if c.ID != "-" {
		switch {
		case strings.Count(c.ID, ".") == 2:
			return asyncflow.InvalidField("id", "is a token: give its jti, or - and the token on "+
				"standard input, where no history of the shell keeps it")
		case c.ID == "" || c.ID != asyncflow.AuditText(c.ID, asyncflow.MaxAuditText):
			return asyncflow.InvalidField("id", "must be 1 to %d bytes without control characters",
				asyncflow.MaxAuditText)
		case !c.Until.IsZero() && (!c.Until.After(now()) || c.Until.After(now().Add(auth.MaxTTL))):
			return asyncflow.InvalidField("--until", "must be within the next 10 years")
		}
		return nil
	}
	text, err := bufio.NewReader(io.LimitReader(in, auth.MaxTokenBytes+2)).ReadString('\n')
	if err != nil && err != io.EOF {
		return err
	}
	d, err := auth.Describe(text)
	if err != nil {
		return asyncflow.InvalidField("id", "is -, and standard input has no token: %v", err)
	}
	c.ID = d.ID
	c.Issuer = d.Issuer
	c.Until = d.ExpiresAt
	return nil
}
