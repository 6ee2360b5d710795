package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/document"
)

// issuersFile is the document in --jwt-issuers-file.
type issuersFile struct {
	Issuers []issuerEntry `json:"issuers"`
}

// issuerEntry is one issuer. Its keys come from one of jwks_url, public_keys_file, public_keys,
// secret and secret_file.
type issuerEntry struct {
	Issuer    string `json:"issuer"`
	Audience  string `json:"audience"`
	Algorithm string `json:"algorithm"`

	JWKSURL        string             `json:"jwks_url"`
	AllowHTTP      bool               `json:"allow_http"`
	CAFile         string             `json:"ca_file"`
	PublicKeysFile string             `json:"public_keys_file"`
	PublicKeys     string             `json:"public_keys"`
	Secret         string             `json:"secret"`
	SecretFile     string             `json:"secret_file"`
	Refresh        asyncflow.Duration `json:"refresh"`

	Type        string           `json:"type"`
	AdminType   string           `json:"admin_type"`
	TenantClaim texts            `json:"tenant_claim"`
	ScopeClaim  string           `json:"scope_claim"`
	Scopes      map[string]texts `json:"scopes"`
	Tenants     []string         `json:"tenants"`
}

// issuerFields are the keys of issuerEntry, by the fields of auth.Config.
var issuerFields = map[string]string{
	"Issuer": "issuer", "Audience": "audience", "Algorithm": "algorithm", "JWKSURL": "jwks_url",
	"PublicKeysFile": "public_keys_file",
	"PublicKeys":     "public_keys", "HMACSecret": "secret", "HMACSecretFile": "secret_file",
	"Interval": "refresh", "TokenType": "type", "AdminType": "admin_type",
	"TenantClaim": "tenant_claim", "ScopeClaim": "scope_claim", "ScopeNames": "scopes",
	"Tenants": "tenants",
}

// texts is a text or a list of texts.
type texts []string

// UnmarshalJSON reads either form.
func (t *texts) UnmarshalJSON(raw []byte) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		*t = texts{one}
		return nil
	}
	var list []string
	if json.Unmarshal(raw, &list) != nil {
		return errors.New("must be a text or a list of texts")
	}
	*t = list
	return nil
}

// readIssuers reads the file of --jwt-issuers-file. ${NAME} in its values is replaced by what
// env says; file names are relative to its folder.
func readIssuers(name string, env lookup) ([]auth.Config, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, asyncflow.Errorf(asyncflow.CodeInvalid, "%v", err)
	}
	var doc issuersFile
	if err := document.Decode(raw, "issuers", env, &doc); err != nil {
		return nil, document.InFile(name, err)
	}
	if len(doc.Issuers) == 0 {
		return nil, &document.Error{Fields: []client.FieldError{
			{Field: "issuers", Message: "must have at least one"}}}
	}
	configs := make([]auth.Config, len(doc.Issuers))
	for i, e := range doc.Issuers {
		if configs[i], err = e.config(filepath.Dir(name)); err != nil {
			return nil, issuerProblem(i, err)
		}
	}
	return configs, nil
}

// issuerProblem adds the index of the entry to the fields of an error.
func issuerProblem(index int, err error) error {
	err = renamed(err, fmt.Sprintf("issuers[%d].", index), issuerFields)
	var e *asyncflow.Error
	if !errors.As(err, &e) || len(e.Fields) == 0 {
		return err
	}
	return &document.Error{Fields: e.Fields}
}

// renamed returns an error with new names for its fields, behind a prefix.
func renamed(err error, prefix string, names map[string]string) error {
	var e *asyncflow.Error
	if !errors.As(err, &e) || len(e.Fields) == 0 {
		return err
	}
	out := *e
	out.Fields = slices.Clone(e.Fields)
	for i, f := range out.Fields {
		if name, ok := names[f.Field]; ok {
			f.Field = name
		}
		out.Fields[i].Field = prefix + f.Field
	}
	return &out
}

// config returns the entry as auth takes it. There are no defaults for issuer and audience: they
// belong to somebody else, and must not be guessed. An issuer can't issue operators' tokens unless
// its entry says so.
func (e issuerEntry) config(dir string) (auth.Config, error) {
	cfg := auth.DefaultConfig()
	cfg.Issuer, cfg.Audience, cfg.Algorithm = e.Issuer, e.Audience, e.Algorithm
	cfg.AdminType = e.AdminType
	cfg.JWKSURL, cfg.AllowHTTP, cfg.Interval = e.JWKSURL, e.AllowHTTP, e.Refresh.Std()
	cfg.PublicKeys, cfg.HMACSecret, cfg.Tenants = []byte(e.PublicKeys), []byte(e.Secret), e.Tenants
	if e.PublicKeysFile != "" {
		cfg.PublicKeysFile = resolvePath(dir, e.PublicKeysFile)
	}
	if e.SecretFile != "" {
		cfg.HMACSecretFile = resolvePath(dir, e.SecretFile)
	}
	if e.Type != "" {
		cfg.TokenType = e.Type
	}
	if len(e.TenantClaim) > 0 {
		cfg.TenantClaim = e.TenantClaim
	}
	if e.ScopeClaim != "" {
		cfg.ScopeClaim = e.ScopeClaim
	}
	cfg.ScopeNames = e.scopeNames()
	return cfg, e.readCA(dir, &cfg)
}

func (e issuerEntry) scopeNames() map[string][]auth.Scope {
	if e.Scopes == nil {
		return nil
	}
	names := make(map[string][]auth.Scope, len(e.Scopes))
	for foreign, ours := range e.Scopes {
		names[foreign] = []auth.Scope{}
		for _, s := range ours {
			names[foreign] = append(names[foreign], auth.Scope(s))
		}
	}
	return names
}

func (e issuerEntry) readCA(dir string, cfg *auth.Config) error {
	if e.CAFile == "" {
		return nil
	}
	raw, err := os.ReadFile(resolvePath(dir, e.CAFile))
	if err != nil {
		return asyncflow.InvalidField("ca_file", "can't be read: %v", err)
	}
	cfg.RootCAs = x509.NewCertPool()
	if !cfg.RootCAs.AppendCertsFromPEM(raw) {
		return asyncflow.InvalidField("ca_file", "has no PEM block CERTIFICATE")
	}
	return nil
}

// resolvePath returns a file name relative to a folder.
func resolvePath(dir, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}

// issuersWatch updates a Verifier when the issuers file changes. A file that can't be used
// changes nothing.
type issuersWatch struct {
	flags  jwtFlags
	env    lookup
	tokens *auth.Verifier
	log    *slog.Logger

	mu     sync.Mutex
	reason string // why the file can't be used; "": it can
}

// Run reads the file, and the files that it names, every 5 s until ctx ends.
func (w *issuersWatch) Run(ctx context.Context) error {
	tick := time.NewTicker(auth.DefaultFileInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			w.runOnce()
		}
	}
}

// runOnce reads the file once. It logs the same error only once.
func (w *issuersWatch) runOnce() {
	changed, err := w.reread()
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	w.mu.Lock()
	before := w.reason
	w.reason = reason
	w.mu.Unlock()
	switch {
	case reason != "" && reason != before:
		w.log.Warn("the issuers file can't be used; the old issuers stay", "error", reason)
	case changed:
		w.log.Info("the issuers of tokens have changed", "from", w.flags.JWTIssuersFile)
	case reason == "" && before != "":
		w.log.Info("the issuers file can be used again", "from", w.flags.JWTIssuersFile)
	}
}

func (w *issuersWatch) reread() (changed bool, err error) {
	configs, err := w.flags.configs(w.env)
	if err != nil {
		return false, err
	}
	changed, err = w.tokens.Change(configs...)
	return changed, w.flags.explain(err)
}

// Stale reports whether the file can't be used as it is.
func (w *issuersWatch) Stale() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reason != ""
}
