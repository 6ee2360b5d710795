package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lmittmann/tint"
	"github.com/mattn/go-isatty"
	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/console"
	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/internal/node"
	"github.com/asyncflow/asyncflow/internal/tracing"
	"github.com/asyncflow/asyncflow/store"
)

// devCmd runs everything on one machine, with its own Postgres.
type devCmd struct {
	Addr       string `default:"127.0.0.1:8080" help:"Address of the API."`
	Data       string `type:"path" env:"ASYNCFLOW_DATA"`
	PgBin      string `type:"path"`
	Offline    bool   `env:"ASYNCFLOW_OFFLINE"`
	WorkerAddr string `default:"127.0.0.1:8081" help:"Address of the sample worker."`
	NoSamples  bool   `help:"Don't start the sample worker or submit sample tasks."`
	TraceURL   string `env:"ASYNCFLOW_TRACE_URL" placeholder:"URL"`

	Concurrency int        `default:"1024" help:"The most tasks in flight at once."`
	Jobs        jobFlags   `embed:""`
	LogLevel    slog.Level `default:"info"`
}

func (c *devCmd) Help() string {
	return `Starts everything that a first look needs: an embedded Postgres, a tenant "dev" with a
token, a sample worker that makes thumbnails, and sample tasks. The next run uses the same data.

This is not for production: deliveries may go to private networks and plain http endpoints, and
endpoints are not challenged.

Examples:

    asyncflow dev
    asyncflow dev --addr 127.0.0.1:9000 --data ./data --no-samples`
}

const devTenant = "dev"

// Run runs until it is told to stop.
func (c *devCmd) Run(ctx context.Context, g *globals) error {
	if c.Concurrency < 1 {
		return usageError(asyncflow.InvalidField("--concurrency", "is %d; it must be at least 1",
			c.Concurrency))
	}
	timetable, err := c.Jobs.timetable()
	if err != nil {
		return usageError(err)
	}
	if err := console.CheckTraceURL(c.TraceURL); err != nil {
		return usageError(renamed(err, "--", nil))
	}
	log, stop := countRepeats(devLog(g, c.LogLevel))
	defer stop()
	if c.Data == "" {
		dir, err := devpg.DefaultDataDir()
		if err != nil {
			return err
		}
		c.Data = dir
	}
	listener, err := listen("--addr", c.Addr) // first, since it is the most likely thing to fail
	if err != nil {
		return c.orOtherDev(err)
	}
	defer listener.Close()
	log.Info("starting Postgres", "data", c.Data)
	pg, err := devpg.Start(ctx, devpg.Config{DataDir: c.Data, BinDir: c.PgBin, Durable: true,
		Offline: c.Offline, Progress: g.stderr})
	if err != nil {
		return c.orOtherDev(err)
	}
	defer stopPostgres(pg, log)
	d := &dev{cmd: c, g: g, log: log, timetable: timetable, listener: listener,
		url: "http://" + listener.Addr().String()}
	if err := d.prepare(ctx, pg); err != nil {
		return err
	}
	defer os.Remove(d.file())
	return d.run(ctx, pg)
}

func stopPostgres(pg *devpg.Server, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := pg.Stop(ctx); err != nil {
		log.Error("Postgres did not stop cleanly", "error", err)
	}
}

// devLog returns a log for reading in a terminal.
func devLog(g *globals, level slog.Level) *slog.Logger {
	f, ok := g.stderr.(*os.File)
	return slog.New(tint.NewTextHandler(g.stderr, &tint.Options{
		TimeFormat: "15:04:05.000",
		Level:      level,
		NoColor:    !ok || !isatty.IsTerminal(f.Fd()) || os.Getenv("NO_COLOR") != "",
	}))
}

// dev is a running dev server.
type dev struct {
	cmd      *devCmd
	g        *globals
	log      *slog.Logger
	listener net.Listener
	url      string // of the API
	database string

	timetable map[string]string // of the background jobs
	secrets   devSecrets
	tokens    *auth.Verifier
	token     string
	admin     string
}

// prepare makes database, schema, tenant, secrets and tokens.
func (d *dev) prepare(ctx context.Context, pg *devpg.Server) error {
	if err := pg.EnsureDatabase(ctx, "asyncflow"); err != nil {
		return err
	}
	d.database = pg.URL("asyncflow")
	if _, err := store.Migrate(ctx, d.database, store.StaleOnly()); err != nil {
		return fmt.Errorf("%s: %w", d.cmd.Data, err)
	}
	switch _, err := store.CreateTenant(ctx, d.database, devTenant); {
	// someone deleted it to see what happens
	case asyncflow.CodeOf(err) == asyncflow.CodeConflict && err != nil:
		d.log.Warn("the tenant of these samples can't be used now", "tenant", devTenant, "error",
			err)
	case err != nil:
		return err
	}
	var err error
	if d.secrets, err = loadSecrets(filepath.Join(d.cmd.Data, "secrets.json")); err != nil {
		return err
	}
	if err := d.makeTokens(); err != nil {
		return err
	}
	d.noteTokens(ctx)
	return d.writeFile()
}

const devTokenLife = 30 * 24 * time.Hour

// makeTokens creates the dev tenant's token, the operator's token, and their verifier.
func (d *dev) makeTokens() error {
	issuer, err := auth.NewIssuer(d.auth())
	if err != nil {
		return err
	}
	scopes := []auth.Scope{auth.ScopeSubmit, auth.ScopeRead, auth.ScopeWork, auth.ScopeOperate,
		auth.ScopeManage}
	d.token, err = issuer.IssueLimited(devTenant, "dev", scopes,
		auth.ClaimLimits{Claimers: auth.Claimers{"*"}}, devTokenLife, time.Now())
	if err != nil {
		return err
	}
	if d.admin, err = issuer.IssueAdmin("dev", devTokenLife, time.Now()); err != nil {
		return err
	}
	d.tokens, err = auth.NewVerifier(d.auth())
	return err
}

// noteTokens lists the tokens, so that they can be revoked.
func (d *dev) noteTokens(ctx context.Context) {
	db := databaseFlag{DatabaseURL: d.database}
	err := errors.Join(noteToken(ctx, db, d.token, false), noteToken(ctx, db, d.admin, true))
	if err != nil {
		d.log.Warn("the tokens can't be listed", "error", err)
	}
}

func (d *dev) auth() auth.Config {
	cfg := auth.DefaultConfig()
	cfg.HMACSecret = []byte(d.secrets.JWT)
	return cfg
}

// run runs the node, the sample worker and the samples until ctx or Postgres ends.
func (d *dev) run(ctx context.Context, pg *devpg.Server) error {
	tuneMemory()
	cfg := d.node()
	tracer, stopTracer, err := startTracer(ctx, d.g, tracing.Config{Secret: cfg.Secret,
		Node: cfg.Store.Node, PerTenant: tracing.DefaultPerTenant, Log: d.log})
	if err != nil {
		return usageError(err)
	}
	defer stopTracer()
	cfg.Tracer = tracer
	g, ctx := errgroup.WithContext(ctx)
	ready := make(chan struct{})
	g.Go(func() error { return node.Run(ctx, cfg, func() { close(ready) }) })
	g.Go(func() error {
		select {
		case <-pg.Done():
			return &asyncflow.Error{Code: asyncflow.CodeUnavailable,
				Message: "Postgres has ended; its log is " +
					filepath.Join(d.cmd.Data, "postgres.log"),
				Err: pg.Err()}
		case <-ctx.Done():
			return nil
		}
	})
	g.Go(func() error {
		select {
		case <-ready:
		case <-ctx.Done():
			return nil
		}
		d.log.Info("asyncflow is ready", "url", d.url, "tenant", devTenant, "database",
			redact(d.database))
		d.log.Warn("dev mode: deliveries may go to private networks and plain http endpoints, " +
			"which are not challenged")
		if d.cmd.NoSamples {
			d.printTour("", "")
			return nil
		}
		return d.runSamples(ctx)
	})
	err = g.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// devEgress lets deliveries go anywhere, such as to the developer's machine.
var devEgress = asyncflow.Anywhere

func (d *dev) node() node.Config {
	roles := node.AllRoles()
	return node.Config{
		Roles: roles, Listener: d.listener, Secret: []byte(d.secrets.Node), Tokens: d.tokens,
		Grace: 5 * time.Second, Metrics: node.MetricsOpen, Log: d.log,
		Store: store.Config{URL: d.database, Node: node.NewName(), Build: version,
			Roles: strings.Join(roles, ","), Notify: true,
			MaxContext: asyncflow.DefaultMaxContext, Log: d.log},
		Callbacks:  callbacks.Config{PublicURL: d.url, Version: version, Egress: devEgress},
		Dispatcher: dispatcher.Config{Concurrency: d.cmd.Concurrency},
		Governance: governance.Config{Timetable: d.timetable,
			AuditRetention: asyncflow.DefaultAuditRetention},
		API: httpapi.Config{Version: version, Egress: devEgress}, // endpoints aren't challenged
		Console: &console.Config{Open: d.token, Instance: console.Instance{Name: "dev"},
			TraceURL: d.cmd.TraceURL},
	}
}
