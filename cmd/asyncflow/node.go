package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/internal/metrics"
	"github.com/asyncflow/asyncflow/store"
)

// Roles of a node.
const (
	roleAPI        = "api"
	roleDispatcher = "dispatcher"
	roleGovernance = "governance"
)

var allRoles = []string{roleAPI, roleDispatcher, roleGovernance}

// nodeConfig is everything that a node needs.
type nodeConfig struct {
	roles      []string
	listener   net.Listener // nil without the role api
	secret     []byte
	oldSecrets [][]byte       // that are read beside it
	tokens     *auth.Verifier // nil without the role api
	issuers    *issuersWatch  // of tokens; nil without an issuers file
	grace      time.Duration
	store      store.Config
	callbacks  callbacks.Config
	dispatcher dispatcher.Config
	governance governance.Config
	alerts     alertFlags
	metrics    string // metricsOnAPI, metricsOff, or the address of metricsListener

	metricsListener net.Listener
	adminListener   net.Listener   // nil: administration is at listener
	api             httpapi.Config // its Store, Verifier, Keys and Log are filled in here
	log             *slog.Logger
}

// nodeName returns a name for this process that no other node of the database has.
func nodeName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "node"
	}
	host = strings.Map(func(r rune) rune {
		if r == ' ' {
			return '-'
		}
		return r
	}, host)
	return host + "/" + strconv.Itoa(os.Getpid()) + "/" + strconv.FormatInt(time.Now().UnixMilli(), 36)
}

// runNode runs a node until ctx ends, and then until what it holds is settled.
// ready is called once it takes requests and tasks.
func runNode(ctx context.Context, cfg nodeConfig, ready func()) error {
	tuneMemory()
	keys, err := callbacks.NewKeys(cfg.secret, cfg.oldSecrets...)
	if err != nil {
		return err
	}
	if err := cfg.alerts.createTenant(ctx, cfg.store); err != nil {
		return err
	}
	var meter *metrics.Metrics
	if cfg.metrics != metricsOff {
		meter = metrics.New(cfg.store.Build)
		cfg.store.Meter = meter
	}
	s, err := store.Open(ctx, cfg.store)
	if err != nil {
		return err
	}
	defer s.Close()
	committer := dispatcher.NewCommitter(s, cfg.log)
	defer committer.Close()
	if err := checkSecret(s, keys); err != nil {
		return err
	}
	if err := cfg.alerts.setUp(ctx, s, keys); err != nil {
		return err
	}
	n := &node{cfg: cfg, store: s, committer: committer, keys: keys, meter: meter}
	if meter != nil {
		meter.Watch(s)
	}
	storing, stopStore := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStore()
	stored := make(chan error, 1)
	if err := n.prepare(); err != nil {
		return err
	}
	go func() { stored <- s.Run(storing) }()
	err = n.run(ctx, ready)
	stopStore() // last: settlements and submits need it until here
	return errors.Join(err, <-stored)
}

// tuneMemory trades memory for speed, unless the environment says otherwise: what
// lives in a node is small, so the collector runs four times as rarely as by
// default (measured: 20 of 95 µs of CPU a task less), until memory grows.
func tuneMemory() {
	const percent, limit = 400, 1 << 30
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
}

// checkSecret refuses node secrets of which none is the one that an endpoint's secrets
// were sealed with: nothing could be signed.
func checkSecret(s *store.Store, keys *callbacks.Keys) error {
	for t := range s.Catalog.Types() {
		for _, stage := range t.StageNames() {
			for _, e := range t.Endpoints(stage) {
				if err := keys.CheckOpen(e); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// node is a running node's parts.
type node struct {
	cfg       nodeConfig
	store     *store.Store
	committer *dispatcher.Committer
	keys      *callbacks.Keys
	wire      *callbacks.Sender
	meter     *metrics.Metrics // nil: they are off
	runs      []func(context.Context) error
}

func (n *node) has(role string) bool { return slices.Contains(n.cfg.roles, role) }

// prepare makes the parts that the roles ask for.
func (n *node) prepare() error {
	wire := n.cfg.callbacks
	wire.Connections, wire.MaxOutput, wire.Log = n.cfg.dispatcher.Concurrency, n.cfg.api.MaxContext, n.cfg.log
	n.wire = callbacks.NewSender(wire, n.keys)
	if n.has(roleDispatcher) {
		cfg := n.cfg.dispatcher
		cfg.Grace, cfg.Log = n.cfg.grace, n.cfg.log
		d := dispatcher.New(n.committer, n.wire, cfg)
		n.runs = append(n.runs, d.Run)
		if n.meter != nil {
			n.meter.InFlight(d.InFlight)
		}
	}
	if n.cfg.metricsListener != nil {
		n.runs = append(n.runs, n.serveMetrics)
	}
	if n.has(roleGovernance) {
		cfg := n.cfg.governance
		cfg.Log = n.cfg.log
		g, err := governance.New(n.store, n.committer, cfg)
		if err != nil {
			return err
		}
		n.runs = append(n.runs, g.Run)
	}
	if n.has(roleAPI) {
		return n.prepareAPI()
	}
	return nil
}

func (n *node) prepareAPI() error {
	cfg := n.cfg.api
	n.runs = append(n.runs, func(ctx context.Context) error { return n.cfg.tokens.Run(ctx, n.cfg.log) })
	if n.cfg.issuers != nil {
		n.runs = append(n.runs, n.cfg.issuers.Run)
	}
	n.meterTokens()
	cfg.Store, cfg.Committer, cfg.Verifier, cfg.Keys = n.store, n.committer, n.cfg.tokens, n.keys
	cfg.Sender, cfg.Log = n.wire, n.cfg.log
	if n.cfg.metrics == metricsOnAPI {
		cfg.Metrics = n.meter.Handler()
	}
	if n.cfg.adminListener == nil {
		return n.serveAPI(cfg, n.cfg.listener)
	}
	cfg.Surface = httpapi.SurfacePublic
	if err := n.serveAPI(cfg, n.cfg.listener); err != nil {
		return err
	}
	cfg.Surface, cfg.Metrics = httpapi.SurfaceAdmin, nil
	return n.serveAPI(cfg, n.cfg.adminListener)
}

// serveAPI has the API served at an address.
func (n *node) serveAPI(cfg httpapi.Config, l net.Listener) error {
	api, err := httpapi.New(cfg)
	if err != nil {
		return err
	}
	n.runs = append(n.runs, func(ctx context.Context) error {
		served := make(chan error, 1)
		go func() { served <- api.Serve(l) }()
		select {
		case err := <-served:
			return err
		case <-ctx.Done():
			n.stopAPI(api)
			return nil
		}
	})
	return nil
}

// apiStopTime bounds the end of requests under way; waiting calls answer at once.
const apiStopTime = 5 * time.Second

func (n *node) stopAPI(api *httpapi.Server) {
	if err := api.Shutdown(apiStopTime); err != nil {
		n.cfg.log.Warn("connections were still open when the API stopped", "error", err)
	}
}

func (n *node) run(ctx context.Context, ready func()) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		<-ctx.Done()
		n.cfg.log.Info("stopping")
		return nil
	})
	for _, run := range n.runs {
		g.Go(func() error { return run(ctx) })
	}
	ready()
	return g.Wait()
}

// listen opens the port of the API. Its error says what to do.
func listen(address string) (net.Listener, error) {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return nil, usageError(asyncflow.InvalidField("the address", "is %q; it must look like :8080 or 127.0.0.1:8080", address))
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, &asyncflow.Error{Code: asyncflow.CodeUnavailable, Err: err,
			Message: "can't listen on " + address + ": stop what uses that port, or choose another address"}
	}
	return l, nil
}
