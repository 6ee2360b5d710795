package main

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow/internal/node"
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
	c.DBRoles.warn(log)
	if c.Migrate {
		if _, err := migrate(ctx, c.DatabaseURL, c.DBRoles.option()); err != nil {
			return err
		}
	}
	defer closeListeners(&cfg)
	if err := c.listen(&cfg); err != nil {
		return err
	}
	if err := c.Alerts.createTenant(ctx, cfg.Store); err != nil {
		return err
	}
	tuneMemory()
	return node.Run(ctx, cfg, func() { c.logReady(cfg) })
}

// listen opens the listeners of a node. The port of the API's gives the public URL, unless
// that is set.
func (c *serveCmd) listen(cfg *node.Config) (err error) {
	if cfg.Metrics == node.MetricsApart {
		if cfg.MetricsListener, err = listen(c.Metrics); err != nil {
			return err
		}
	}
	if !slices.Contains(cfg.Roles, node.RoleAPI) {
		return nil
	}
	if cfg.Listener, err = listen(c.Listen); err != nil {
		return err
	}
	if cfg.Callbacks.PublicURL == "" {
		_, port, _ := net.SplitHostPort(cfg.Listener.Addr().String())
		cfg.Callbacks.PublicURL = "http://127.0.0.1:" + port
	}
	if c.AdminListen == "" {
		return nil
	}
	if cfg.AdminListener, err = listen(c.AdminListen); err != nil {
		return err
	}
	cfg.Log.Info("administration is served", "listen", cfg.AdminListener.Addr().String())
	return nil
}

func closeListeners(cfg *node.Config) {
	for _, l := range []net.Listener{cfg.Listener, cfg.AdminListener, cfg.MetricsListener} {
		if l != nil {
			l.Close()
		}
	}
}

// logReady logs that the node is ready, and the settings that an operator should know of.
func (c *serveCmd) logReady(cfg node.Config) {
	address := "none"
	if cfg.Listener != nil {
		address = cfg.Listener.Addr().String()
	}
	log, allow, deny := cfg.Log, c.Egress.EgressAllow, c.Egress.EgressDeny
	log.Info("asyncflow is ready", "version", version, "node", cfg.Store.Node,
		"roles", cfg.Store.Roles, "listen", address, "public_url", cfg.Callbacks.PublicURL)
	if len(allow)+len(deny) > 0 {
		log.Info("the operator's rules for deliveries",
			"allow", strings.Join(allow, ","), "deny", strings.Join(deny, ","))
	}
	if !c.Verify {
		log.Warn("endpoints are not challenged: deliveries go to whatever URL is registered",
			"verify_endpoints", false)
	}
	if c.AllowPrivate || c.AllowHTTP {
		log.Warn("deliveries are less restricted than by default",
			"allow_private_networks", c.AllowPrivate, "allow_http", c.AllowHTTP)
	}
}
