package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/node"
	"github.com/asyncflow/asyncflow/internal/repeats"
	"github.com/asyncflow/asyncflow/internal/tracing"
	"github.com/asyncflow/asyncflow/store"
)

// serveCmd runs a node against the operator's Postgres.
type serveCmd struct {
	DatabaseURL string    `env:"DATABASE_URL" required:"" placeholder:"URL"`
	PooledURL   string    `name:"pooled-url" env:"ASYNCFLOW_POOLED_URL" placeholder:"URL"`
	DBRoles     rolesFlag `embed:""`
	Citus       citusFlag `embed:""`
	Listen      string    `env:"ASYNCFLOW_LISTEN" default:":8080" help:"Address of the API."`
	AdminListen string    `env:"ASYNCFLOW_ADMIN_LISTEN" placeholder:"ADDRESS"`
	PublicURL   string    `env:"ASYNCFLOW_PUBLIC_URL" placeholder:"URL"`
	Roles       []string  `env:"ASYNCFLOW_ROLES" default:"api,dispatcher,governance"`
	Migrate     bool      `env:"ASYNCFLOW_MIGRATE" help:"Migrate the database's schemas first, as far as they say that they need it."`

	Secret  string   `env:"ASYNCFLOW_SECRET" required:""`
	Old     string   `name:"old-secrets" env:"ASYNCFLOW_OLD_SECRETS" placeholder:"SECRETS"`
	Signing jwtFlags `embed:""`

	Jobs    jobFlags     `embed:""`
	Alerts  alertFlags   `embed:""`
	Audit   auditFlags   `embed:""`
	Egress  egressFlags  `embed:""`
	Limits  limitFlags   `embed:""`
	Console consoleFlags `embed:""`

	DefaultQuotas []string `env:"ASYNCFLOW_DEFAULT_QUOTAS" placeholder:"NAME=LIMIT"`

	Concurrency          int           `env:"ASYNCFLOW_CONCURRENCY" default:"1024"`
	ContextBytes         int           `env:"ASYNCFLOW_CONTEXT_BYTES" default:"67108864"`
	Grace                time.Duration `env:"ASYNCFLOW_GRACE" default:"20s"`
	DrainDelay           time.Duration `env:"ASYNCFLOW_DRAIN_DELAY" default:"5s"`
	Pool                 int           `env:"ASYNCFLOW_POOL" default:"10"`
	HotPool              int           `env:"ASYNCFLOW_HOT_POOL" default:"4"`
	Notify               bool          `env:"ASYNCFLOW_NOTIFY" default:"true" negatable:""`
	Poll                 time.Duration `env:"ASYNCFLOW_POLL" default:"1s"`
	MaxContext           int           `env:"ASYNCFLOW_MAX_CONTEXT" default:"262144"`
	MaxBody              int           `env:"ASYNCFLOW_MAX_BODY" default:"16777216"`
	AllowHTTP            bool          `env:"ASYNCFLOW_ALLOW_HTTP"`
	AllowPrivateNetworks bool          `env:"ASYNCFLOW_ALLOW_PRIVATE_NETWORKS"`
	VerifyEndpoints      bool          `env:"ASYNCFLOW_VERIFY_ENDPOINTS" default:"true" negatable:""`
	TraceLimit           int           `env:"ASYNCFLOW_TRACE_LIMIT" default:"200"`
	Metrics              string        `env:"ASYNCFLOW_METRICS" default:"api" placeholder:"WHERE"`
	LogFormat            string        `env:"ASYNCFLOW_LOG_FORMAT" enum:"text,json" default:"text"`
	LogLevel             slog.Level    `env:"ASYNCFLOW_LOG_LEVEL" default:"info"`
}

func (c *serveCmd) Help() string {
	return `Several nodes may share one Postgres; they then share the work.

Example:

    export DATABASE_URL=postgres://asyncflow:secret@localhost:5432/asyncflow
    export ASYNCFLOW_SECRET=$(openssl rand -hex 32) ASYNCFLOW_JWT_SECRET=$(openssl rand -hex 32)
    asyncflow serve --migrate --public-url https://tasks.example.com`
}

// Run runs the node until it is told to stop.
func (c *serveCmd) Run(ctx context.Context, g *globals) error {
	log, stop := countRepeats(newLog(g, c.LogFormat, c.LogLevel))
	defer stop()
	cfg, err := c.config(log, g.env)
	if err != nil {
		return usageError(err)
	}
	c.DBRoles.warn(log)
	if c.Migrate {
		if _, err := migrate(ctx, c.DatabaseURL, c.DBRoles.option(),
			store.StaleOnly()); err != nil {
			return err
		}
	}
	tracer, stopTracer, err := startTracer(ctx, g, tracing.Config{Secret: cfg.Secret,
		Node: cfg.Store.Node, PerTenant: c.TraceLimit, Log: log})
	if err != nil {
		return usageError(err)
	}
	defer stopTracer()
	cfg.Tracer = tracer
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
		if cfg.MetricsListener, err = listen("--metrics", c.Metrics); err != nil {
			return err
		}
	}
	if !slices.Contains(cfg.Roles, node.RoleAPI) {
		return nil
	}
	if cfg.Listener, err = listen("--listen", c.Listen); err != nil {
		return err
	}
	if cfg.Callbacks.PublicURL == "" {
		_, port, _ := net.SplitHostPort(cfg.Listener.Addr().String())
		cfg.Callbacks.PublicURL = "http://127.0.0.1:" + port
	}
	if c.AdminListen == "" {
		return nil
	}
	if cfg.AdminListener, err = listen("--admin-listen", c.AdminListen); err != nil {
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
	if !c.VerifyEndpoints {
		log.Warn("endpoints are not challenged: deliveries go to any registered URL",
			"verify_endpoints", false)
	}
	if c.AllowPrivateNetworks || c.AllowHTTP {
		log.Warn("deliveries are less restricted than by default",
			"allow_private_networks", c.AllowPrivateNetworks, "allow_http", c.AllowHTTP)
	}
}

// checkAddress returns an error for a text that is no address to listen on.
func checkAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	_, err = net.LookupPort("tcp", port)
	return err
}

// listen opens the port of a node that a flag sets. Its error says what to do.
func listen(flag, address string) (net.Listener, error) {
	if checkAddress(address) != nil {
		return nil, usageError(asyncflow.InvalidField(flag,
			"is %q; it must look like :8080 or 127.0.0.1:8080", address))
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, &asyncflow.Error{Code: asyncflow.CodeUnavailable, Err: err,
			Message: "can't listen on " + address +
				": stop the program that uses that port, or choose another address with " + flag}
	}
	return l, nil
}

// newLog returns the log of a node, on standard error.
func newLog(g *globals, format string, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == "json" {
		options.ReplaceAttr = inMilliseconds
		return slog.New(slog.NewJSONHandler(g.stderr, options))
	}
	return slog.New(slog.NewTextHandler(g.stderr, options))
}

// uncounted are the messages of lines that are all written: each is about something of its own. The
// last two are what the audit lacks, and the ones before them tell of an attempt in the place of
// its own line.
var uncounted = []string{"attempt", "alert", "can't settle; the lease will run out",
	"the lease was lost meanwhile; the outcome does not count",
	"can't keep the lease of an accepted task: it may be delivered again",
	"can't write an entry of the audit",
	"an entry of the audit is lost: the database doesn't take it"}

// countRepeats returns a log that counts repeated lines, until stop is called. A log of the level
// debug keeps all lines.
func countRepeats(log *slog.Logger) (counted *slog.Logger, stop func()) {
	if log.Enabled(context.Background(), slog.LevelDebug) {
		return log, func() {}
	}
	handler := repeats.New(log.Handler(), uncounted...)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { handler.Run(ctx) })
	return slog.New(handler), func() {
		cancel()
		running.Wait()
	}
}

// inMilliseconds writes a duration, such as duration, as duration_ms: JSON has no durations, and
// slog would write a number of nanoseconds that doesn't say so.
func inMilliseconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() != slog.KindDuration {
		return a
	}
	return slog.Float64(a.Key+"_ms", float64(a.Value.Duration())/float64(time.Millisecond))
}

// tuneMemory trades memory for speed, unless the environment says otherwise. A node keeps
// little in memory, so the collector runs a quarter as often as by default (measured: 20 of
// 95 µs of CPU a task less), until memory grows.
func tuneMemory() {
	const percent, limit = 400, 1 << 30
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
}
