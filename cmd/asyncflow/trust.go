package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
)

// trust returns what verifies tokens and, if there is an issuers file, what keeps it up to
// date.
func (f jwtFlags) trust(env lookup, log *slog.Logger) (*auth.Verifier, *issuersWatch, error) {
	tokens, err := f.verifier(env)
	if err != nil || f.JWTIssuersFile == "" {
		return tokens, nil, err
	}
	return tokens, &issuersWatch{flags: f, env: env, tokens: tokens, log: log}, nil
}

// verifier returns what verifies the tokens of all issuers that the flags name.
func (f jwtFlags) verifier(env lookup) (*auth.Verifier, error) {
	configs, err := f.configs(env)
	if err != nil {
		return nil, err
	}
	v, err := auth.NewVerifier(configs...)
	return v, f.explain(err)
}

// configs returns the issuer of the flags, if they name one, and then those of the file.
func (f jwtFlags) configs(env lookup) ([]auth.Config, error) {
	var configs []auth.Config
	if f.byFlags() > 0 {
		cfg, err := f.config()
		if err != nil {
			return nil, err
		}
		configs = append(configs, cfg)
	}
	if f.JWTIssuersFile != "" {
		more, err := readIssuers(f.JWTIssuersFile, env)
		if err != nil {
			return nil, fmt.Errorf("ASYNCFLOW_JWT_ISSUERS_FILE: %w", err)
		}
		configs = append(configs, more...)
	}
	return configs, nil
}

// byFlags returns how many issuers the flags themselves name, or have to.
func (f jwtFlags) byFlags() int {
	if f.JWTSecret != "" || f.JWTSecretFile != "" || f.JWTPublicKeysFile != "" || f.JWTIssuersFile == "" {
		return 1
	}
	return 0
}

// explain names what an error about an issuer is about as it is called in the settings
// or in the file.
func (f jwtFlags) explain(err error) error {
	var wrong *auth.IssuerError
	switch {
	case !errors.As(err, &wrong):
		return err
	case wrong.Index >= f.byFlags():
		return fmt.Errorf("ASYNCFLOW_JWT_ISSUERS_FILE: %w", issuerProblem(wrong.Index-f.byFlags(), wrong.Err))
	default:
		return renamed(wrong.Err, "", jwtVariables)
	}
}

// jwtVariables are the settings of the one issuer, by the fields of auth.Config.
var jwtVariables = map[string]string{
	"HMACSecret": "ASYNCFLOW_JWT_SECRET", "HMACSecretFile": "ASYNCFLOW_JWT_SECRET_FILE", "PublicKeysFile": "ASYNCFLOW_JWT_PUBLIC_KEYS_FILE",
	"Issuer": "ASYNCFLOW_JWT_ISSUER", "Audience": "ASYNCFLOW_JWT_AUDIENCE", "TokenType": "ASYNCFLOW_JWT_TYPE", "AdminType": "ASYNCFLOW_JWT_ADMIN_TYPE",
}

// config returns the issuer of the flags; a missing or doubled key is named.
func (f jwtFlags) config() (auth.Config, error) {
	cfg := auth.DefaultConfig()
	cfg.Issuer, cfg.Audience, cfg.TokenType, cfg.AdminType = f.JWTIssuer, f.JWTAudience, f.JWTType, f.JWTAdminType
	if !oneOf(f.JWTSecret, f.JWTSecretFile, f.JWTPublicKeysFile) {
		return cfg, asyncflow.Errorf(asyncflow.CodeInvalid, "set one of ASYNCFLOW_JWT_SECRET, ASYNCFLOW_JWT_SECRET_FILE and ASYNCFLOW_JWT_PUBLIC_KEYS_FILE, or ASYNCFLOW_JWT_ISSUERS_FILE: tokens are verified with it")
	}
	cfg.HMACSecret, cfg.HMACSecretFile, cfg.PublicKeysFile = []byte(f.JWTSecret), f.JWTSecretFile, f.JWTPublicKeysFile
	return cfg, nil
}

// oneOf tells whether just one of the texts is not empty.
func oneOf(texts ...string) bool {
	set := 0
	for _, text := range texts {
		if text != "" {
			set++
		}
	}
	return set == 1
}

// issuersWatch keeps a Verifier as the issuers file says, while that changes. A file that
// can't be used changes nothing.
type issuersWatch struct {
	flags  jwtFlags
	env    lookup
	tokens *auth.Verifier
	log    *slog.Logger

	mu     sync.Mutex
	reason string // why the file can't be used; "": it can
}

// Run looks at the file, and at those that it reads in, every 5 s until ctx ends.
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

// runOnce looks at the file once. The same fault is logged once.
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
		w.log.Warn("the issuers file can't be used; the issuers of before stay", "error", reason)
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

// stale tells whether the file can't be used as it is.
func (w *issuersWatch) stale() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reason != ""
}
