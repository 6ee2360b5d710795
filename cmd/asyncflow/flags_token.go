package main

import (
	"errors"
	"fmt"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/internal/node"
)

// jwtFlags set the trusted issuers of tokens: one by the flags, more by a file.
type jwtFlags struct {
	JWTSecret         string `env:"ASYNCFLOW_JWT_SECRET"`
	JWTSecretFile     string `env:"ASYNCFLOW_JWT_SECRET_FILE" type:"path" placeholder:"FILE"`
	JWTPublicKeysFile string `env:"ASYNCFLOW_JWT_PUBLIC_KEYS_FILE" type:"path"`
	JWTIssuer         string `env:"ASYNCFLOW_JWT_ISSUER" default:"asyncflow"`
	JWTAudience       string `env:"ASYNCFLOW_JWT_AUDIENCE" default:"asyncflow"`
	JWTType           string `env:"ASYNCFLOW_JWT_TYPE" default:"at+jwt"`
	JWTAdminType      string `env:"ASYNCFLOW_JWT_ADMIN_TYPE" default:"asyncflow-admin+jwt"`
	JWTIssuersFile    string `env:"ASYNCFLOW_JWT_ISSUERS_FILE" type:"path" placeholder:"FILE"`
}

// trust gives a node the verifier of tokens and, if there is an issuers file, the watch that
// keeps it up to date.
func (f jwtFlags) trust(env lookup, cfg *node.Config) error {
	tokens, err := f.verifier(env)
	if err != nil {
		return err
	}
	cfg.Tokens = tokens
	if f.JWTIssuersFile != "" {
		cfg.Issuers = &issuersWatch{flags: f, env: env, tokens: tokens, log: cfg.Log}
	}
	return nil
}

// verifier returns a verifier for the tokens of all issuers that the flags name.
func (f jwtFlags) verifier(env lookup) (*auth.Verifier, error) {
	configs, err := f.configs(env)
	if err != nil {
		return nil, err
	}
	v, err := auth.NewVerifier(configs...)
	return v, f.explain(err)
}

// configs returns the issuer of the flags, if they name one, and then the issuers of the file.
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

// byFlags returns the number of issuers that the flags themselves describe, or must.
func (f jwtFlags) byFlags() int {
	if f.JWTSecret != "" || f.JWTSecretFile != "" || f.JWTPublicKeysFile != "" ||
		f.JWTIssuersFile == "" {
		return 1
	}
	return 0
}

// explain renames the fields in an error about an issuer as in the settings or the file.
func (f jwtFlags) explain(err error) error {
	var wrong *auth.IssuerError
	switch {
	case !errors.As(err, &wrong):
		return err
	case wrong.Index >= f.byFlags():
		return fmt.Errorf("ASYNCFLOW_JWT_ISSUERS_FILE: %w",
			issuerProblem(wrong.Index-f.byFlags(), wrong.Err))
	default:
		return renamed(wrong.Err, "", jwtVariables)
	}
}

// jwtVariables are the settings of the one issuer, by the fields of auth.Config.
var jwtVariables = map[string]string{
	"HMACSecret": "ASYNCFLOW_JWT_SECRET", "HMACSecretFile": "ASYNCFLOW_JWT_SECRET_FILE",
	"PublicKeysFile": "ASYNCFLOW_JWT_PUBLIC_KEYS_FILE",
	"Issuer":         "ASYNCFLOW_JWT_ISSUER", "Audience": "ASYNCFLOW_JWT_AUDIENCE",
	"TokenType": "ASYNCFLOW_JWT_TYPE", "AdminType": "ASYNCFLOW_JWT_ADMIN_TYPE",
}

// config returns the issuer of the flags. An error names a missing key, or the keys that
// exclude each other.
func (f jwtFlags) config() (auth.Config, error) {
	cfg := auth.DefaultConfig()
	cfg.Issuer, cfg.Audience = f.JWTIssuer, f.JWTAudience
	cfg.TokenType, cfg.AdminType = f.JWTType, f.JWTAdminType
	if !oneOf(f.JWTSecret, f.JWTSecretFile, f.JWTPublicKeysFile) {
		return cfg, asyncflow.Errorf(asyncflow.CodeInvalid,
			"set one of ASYNCFLOW_JWT_SECRET, ASYNCFLOW_JWT_SECRET_FILE and "+
				"ASYNCFLOW_JWT_PUBLIC_KEYS_FILE, or ASYNCFLOW_JWT_ISSUERS_FILE: tokens are "+
				"verified with it")
	}
	cfg.HMACSecret, cfg.HMACSecretFile = []byte(f.JWTSecret), f.JWTSecretFile
	cfg.PublicKeysFile = f.JWTPublicKeysFile
	return cfg, nil
}

// oneOf reports whether exactly one of the texts is not empty.
func oneOf(texts ...string) bool {
	set := 0
	for _, text := range texts {
		if text != "" {
			set++
		}
	}
	return set == 1
}
