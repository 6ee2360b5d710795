package main

import (
	"context"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/store"
)

// serveCmd runs a node against a Postgres of the operator's.
type serveCmd struct {
	DatabaseURL string    `env:"DATABASE_URL" required:"" placeholder:"URL" help:"Postgres to keep everything in: postgres://user:password@host:5432/database."`
	DBRoles     rolesFlag `embed:""`
	Listen      string    `env:"ASYNCFLOW_LISTEN" default:":8080" help:"Address of the API."`
	AdminListen string    `env:"ASYNCFLOW_ADMIN_LISTEN" placeholder:"ADDRESS" help:"An address of its own for what needs an operator's token, such as 127.0.0.1:8082; it is not at --listen then."`
	PublicURL   string    `env:"ASYNCFLOW_PUBLIC_URL" placeholder:"URL" help:"Where workers reach this API, for completions. Default: http://127.0.0.1 and the port."`
	Roles       []string  `env:"ASYNCFLOW_ROLES" default:"api,dispatcher,governance" help:"What this node does."`
	Migrate     bool      `env:"ASYNCFLOW_MIGRATE" help:"Bring the schema up to date first."`

	Secret  string   `env:"ASYNCFLOW_SECRET" required:"" help:"Secret of at least 32 bytes that all nodes share: it seals endpoint secrets and signs completion tokens. Set it by the environment."`
	Old     string   `name:"old-secrets" env:"ASYNCFLOW_OLD_SECRETS" placeholder:"SECRETS" help:"Earlier secrets, separated by commas, 5 at most: what was sealed and signed with them is still read. See asyncflow keys. Set them by the environment."`
	Signing jwtFlags `embed:""`

	Jobs   jobFlags    `embed:""`
	Alerts alertFlags  `embed:""`
	Audit  auditFlags  `embed:""`
	Egress egressFlags `embed:""`
	Limits limitFlags  `embed:""`

	DefaultQuotas []string `env:"ASYNCFLOW_DEFAULT_QUOTAS" placeholder:"NAME=LIMIT" help:"Quotas of tenants that have none of their own, such as pending_tasks=1000000. Several by commas."`

	Concurrency  int           `env:"ASYNCFLOW_CONCURRENCY" default:"1024" help:"The most tasks that this node has under way at once."`
	ContextBytes int           `env:"ASYNCFLOW_CONTEXT_BYTES" default:"67108864" help:"About the most bytes of contexts, and of outputs that aren't written yet, that this node has under way at once."`
	Grace        time.Duration `env:"ASYNCFLOW_GRACE" default:"20s" help:"How long attempts under way may take to end after a stop."`
	Pool         int           `env:"ASYNCFLOW_POOL" default:"10" help:"Connections for requests and governance."`
	HotPool      int           `env:"ASYNCFLOW_HOT_POOL" default:"8" help:"Connections that submit, lease and settle."`
	Notify       bool          `env:"ASYNCFLOW_NOTIFY" default:"true" negatable:"" help:"Tell other nodes of new tasks with LISTEN and NOTIFY. Turn it off behind a transaction pooler; dispatchers poll then."`
	Poll         time.Duration `env:"ASYNCFLOW_POLL" default:"1s" help:"Without NOTIFY: the mean interval, for all nodes together, at which an idle task type is looked at."`
	MaxContext   int           `env:"ASYNCFLOW_MAX_CONTEXT" default:"262144" help:"Limit of a task's context in bytes."`
	MaxBody      int           `env:"ASYNCFLOW_MAX_BODY" default:"16777216" help:"Limit of a request's body in bytes."`
	AllowHTTP    bool          `env:"ASYNCFLOW_ALLOW_HTTP" help:"Let endpoints have plain http URLs."`
	AllowPrivate bool          `env:"ASYNCFLOW_ALLOW_PRIVATE_NETWORKS" name:"allow-private-networks" help:"Let deliveries go to loopback and private networks."`
	Verify       bool          `env:"ASYNCFLOW_VERIFY_ENDPOINTS" name:"verify-endpoints" default:"true" negatable:"" help:"Have endpoints echo a challenge before they get deliveries."`
	Metrics      string        `env:"ASYNCFLOW_METRICS" default:"api" placeholder:"WHERE" help:"Where /metrics is: api (on the port of the API), an address of its own such as 127.0.0.1:9090, or off."`
	LogFormat    string        `env:"ASYNCFLOW_LOG_FORMAT" enum:"text,json" default:"text" help:"text or json."`
	LogLevel     slog.Level    `env:"ASYNCFLOW_LOG_LEVEL" default:"info" help:"debug, info, warn or error."`
}

// jwtFlags say which tokens are accepted: those of one issuer by the flags, of more
// by a file.
type jwtFlags struct {
	JWTSecret         string `name:"jwt-secret" env:"ASYNCFLOW_JWT_SECRET" help:"HS256 secret of at least 32 bytes that tokens are signed with. Set it by the environment."`
	JWTSecretFile     string `name:"jwt-secret-file" env:"ASYNCFLOW_JWT_SECRET_FILE" type:"path" placeholder:"FILE" help:"File of such secrets, one a line, instead: a token may be signed with any of them. It is read again when it changes."`
	JWTPublicKeysFile string `name:"jwt-public-keys-file" env:"ASYNCFLOW_JWT_PUBLIC_KEYS_FILE" type:"path" help:"File of public keys (EdDSA, ES256 or RS256; PEM or a JWK Set) instead of a secret. It is read again when it changes."`
	JWTIssuer         string `name:"jwt-issuer" env:"ASYNCFLOW_JWT_ISSUER" default:"asyncflow" help:"Issuer that a token must have."`
	JWTAudience       string `name:"jwt-audience" env:"ASYNCFLOW_JWT_AUDIENCE" default:"asyncflow" help:"Audience that a token must have."`
	JWTType           string `name:"jwt-type" env:"ASYNCFLOW_JWT_TYPE" default:"at+jwt" help:"The typ header that a tenant's token must have."`
	JWTAdminType      string `name:"jwt-admin-type" env:"ASYNCFLOW_JWT_ADMIN_TYPE" default:"asyncflow-admin+jwt" help:"The typ header that an operator's token must have."`
	JWTIssuersFile    string `name:"jwt-issuers-file" env:"ASYNCFLOW_JWT_ISSUERS_FILE" type:"path" placeholder:"FILE" help:"YAML or JSON file of issuers whose tokens are accepted, instead of or besides the one of the flags above."`
}

// Help is shown by asyncflow serve --help.
func (c *serveCmd) Help() string {
	return `Several nodes may share one Postgres; they share the work too.

Example:
  export DATABASE_URL=postgres://asyncflow:secret@localhost:5432/asyncflow
  export ASYNCFLOW_SECRET=$(openssl rand -hex 32) ASYNCFLOW_JWT_SECRET=$(openssl rand -hex 32)
  asyncflow serve --migrate --public-url https://tasks.example.com`
}

// Run runs the node until it is told to stop.
func (c *serveCmd) Run(ctx context.Context, g *globals) error {
	log := newLog(g, c.LogFormat, c.LogLevel)
	cfg, err := c.config(log, g.env)
	if err != nil {
		return usageError(err)
	}
	address := "none"
	c.DBRoles.warn(log)
	if c.Migrate {
		if _, err := migrate(ctx, c.DatabaseURL, c.DBRoles.option()); err != nil {
			return err
		}
	}
	if cfg.metrics != metricsOnAPI && cfg.metrics != metricsOff {
		if cfg.metricsListener, err = listen(cfg.metrics); err != nil {
			return err
		}
		defer cfg.metricsListener.Close()
	}
	if slices.Contains(cfg.roles, roleAPI) {
		if cfg.listener, err = listen(c.Listen); err != nil {
			return err
		}
		defer cfg.listener.Close()
		address = cfg.listener.Addr().String()
		if c.AdminListen != "" {
			if cfg.adminListener, err = listen(c.AdminListen); err != nil {
				return err
			}
			defer cfg.adminListener.Close()
			log.Info("administration is served", "listen", cfg.adminListener.Addr().String())
		}
	}
	if cfg.callbacks.PublicURL == "" {
		_, port, _ := net.SplitHostPort(address)
		cfg.callbacks.PublicURL = "http://127.0.0.1:" + port
	}
	return runNode(ctx, cfg, func() {
		log.Info("asyncflow is ready", "version", version, "node", cfg.store.Node, "roles", strings.Join(cfg.roles, ","),
			"listen", address, "public_url", cfg.callbacks.PublicURL)
		if len(c.Egress.EgressAllow)+len(c.Egress.EgressDeny) > 0 {
			log.Info("the operator's rules for deliveries", "allow", strings.Join(c.Egress.EgressAllow, ","), "deny", strings.Join(c.Egress.EgressDeny, ","))
		}
		if !c.Verify {
			log.Warn("endpoints are not challenged: deliveries go to whatever URL is registered", "verify_endpoints", false)
		}
		if c.AllowPrivate || c.AllowHTTP {
			log.Warn("deliveries are less guarded than by default", "allow_private_networks", c.AllowPrivate, "allow_http", c.AllowHTTP)
		}
	})
}

// config checks the flags and puts the parts' configs together.
func (c *serveCmd) config(log *slog.Logger, env lookup) (nodeConfig, error) {
	for _, role := range c.Roles {
		if !slices.Contains(allRoles, role) {
			return nodeConfig{}, asyncflow.InvalidField("--roles", "has %q; the roles are %s", role, strings.Join(allRoles, ", "))
		}
	}
	if len(c.Secret) < callbacks.MinSecretBytes {
		return nodeConfig{}, asyncflow.InvalidField("ASYNCFLOW_SECRET", "is %d bytes; it must be at least %d", len(c.Secret), callbacks.MinSecretBytes)
	}
	old, err := oldSecrets(c.Old)
	if err != nil {
		return nodeConfig{}, err
	}
	if err := c.checkNumbers(); err != nil {
		return nodeConfig{}, err
	}
	if err := c.Limits.check(c.MaxBody); err != nil {
		return nodeConfig{}, err
	}
	public, err := c.publicURL()
	if err != nil {
		return nodeConfig{}, err
	}
	schedules, err := c.Jobs.schedules()
	if err != nil {
		return nodeConfig{}, err
	}
	egress, err := c.Egress.policy(c.AllowHTTP, c.AllowPrivate)
	if err != nil {
		return nodeConfig{}, err
	}
	if err := c.Alerts.check(egress); err != nil {
		return nodeConfig{}, err
	}
	quotas, err := defaultQuotas(c.DefaultQuotas)
	if err != nil {
		return nodeConfig{}, err
	}
	if err := checkRetention(c.Audit.AuditRetention); err != nil {
		return nodeConfig{}, err
	}
	proxies, err := c.Audit.proxies()
	if err != nil {
		return nodeConfig{}, err
	}
	var tokens *auth.Verifier
	var issuers *issuersWatch
	if slices.Contains(c.Roles, roleAPI) { // nobody else verifies tokens
		if tokens, issuers, err = c.Signing.trust(env, log); err != nil {
			return nodeConfig{}, err
		}
	}
	cfg := nodeConfig{
		roles: c.Roles, secret: []byte(c.Secret), oldSecrets: old, tokens: tokens, issuers: issuers, grace: c.Grace, log: log,
		store: store.Config{URL: c.DatabaseURL, Node: nodeName(), Roles: strings.Join(c.Roles, ","), Build: version,
			Pool: c.Pool, HotPool: c.HotPool, Notify: c.Notify, NoRoles: c.DBRoles.off(), DefaultQuotas: quotas,
			MaxContext: c.MaxContext, Log: log},
		callbacks:  callbacks.Config{PublicURL: public, Version: version, Egress: egress},
		dispatcher: dispatcher.Config{Concurrency: c.Concurrency, ContextBytes: c.ContextBytes},
		governance: governance.Config{Schedules: schedules, AuditRetention: c.Audit.AuditRetention}, alerts: c.Alerts, metrics: c.Metrics,
		api: httpapi.Config{Version: version, MaxBody: c.MaxBody, MaxContext: c.MaxContext, Egress: egress,
			VerifyEndpoints: c.Verify, TrustedProxies: proxies},
	}
	c.Limits.apply(&cfg.api)
	if !c.Notify {
		cfg.dispatcher.Poll = c.Poll
	}
	return cfg, nil
}

// defaultQuotas reads the quotas of tenants that have none of their own.
func defaultQuotas(items []string) (asyncflow.Quotas, error) {
	changes, err := asyncflow.ParseQuotas(items)
	if err != nil {
		return asyncflow.Quotas{}, rename("--default-quotas", err)
	}
	return asyncflow.Quotas{}.With(changes)
}

// checkNumbers refuses limits that can't be.
func (c *serveCmd) checkNumbers() error {
	for _, f := range []struct {
		name        string
		value       int
		least, most int
	}{
		{"--concurrency", c.Concurrency, 1, 100_000},
		{"--context-bytes", c.ContextBytes, 1 << 20, 1 << 40},
		{"--pool", c.Pool, 2, 10_000},
		{"--hot-pool", c.HotPool, 2, 10_000},
		{"--max-context", c.MaxContext, 1, 64 << 20},
		{"--max-body", c.MaxBody, 1, 1 << 30},
	} {
		if f.value < f.least || f.value > f.most {
			return asyncflow.InvalidField(f.name, "is %d; it must be %d to %d", f.value, f.least, f.most)
		}
	}
	if c.Grace <= 0 || c.Grace > time.Hour {
		return asyncflow.InvalidField("--grace", "is %s; it must be above 0s, and 1h at most", c.Grace)
	}
	if c.Poll < 10*time.Millisecond || c.Poll > time.Hour {
		return asyncflow.InvalidField("--poll", "is %s; it must be 10ms to 1h", c.Poll)
	}
	return nil
}

// publicURL returns the URL that workers are told, without a slash at its end; ""
// when it follows from the address of the API.
func (c *serveCmd) publicURL() (string, error) {
	if c.PublicURL == "" && slices.Contains(c.Roles, roleAPI) {
		return "", nil // known once the API listens
	}
	u, err := url.Parse(c.PublicURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || strings.ContainsAny(c.PublicURL, `"\`) {
		return "", asyncflow.InvalidField("--public-url", "is %q; it must be an absolute URL such as https://tasks.example.com", c.PublicURL)
	}
	return strings.TrimRight(c.PublicURL, "/"), nil
}

func newLog(g *globals, format string, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(g.stderr, options))
	}
	return slog.New(slog.NewTextHandler(g.stderr, options))
}
