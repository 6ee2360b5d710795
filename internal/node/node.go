package node

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/console"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/internal/tracing"
	"github.com/asyncflow/asyncflow/store"
)

// Run runs a node until ctx ends, and then until its leases are settled. It calls ready
// when the node takes requests and tasks.
func Run(ctx context.Context, cfg Config, ready func()) error {
	p, err := newParts(ctx, cfg)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.checkSecret(); err != nil {
		return err
	}
	if err := cfg.Alerts.setUp(ctx, p.store, p.keys); err != nil {
		return err
	}
	n := &node{parts: p, cfg: cfg}
	if cfg.has(RoleAPI) {
		r := &revocations{store: p.store, tokens: cfg.Tokens, log: cfg.Log}
		if err := r.load(ctx); err != nil {
			return err
		}
		n.runs = append(n.runs, r.run)
	}
	if err := n.prepare(); err != nil {
		return err
	}
	storing, stopStore := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStore()
	stored := make(chan error, 1)
	go func() { stored <- p.store.Run(storing) }()
	err = n.run(ctx, ready)
	p.committer.Close()
	stopStore() // last: until here, settlements and submits need it
	return errors.Join(err, <-stored)
}

// node is a node that is about to run.
type node struct {
	*parts
	cfg  Config
	runs []func(context.Context) error // what goes on until the node stops
	// watch goes on until the end of all of runs, so that operators see the node stop; nil: none
	watch    func(context.Context) error
	stopping atomic.Bool
}

func (c Config) has(role string) bool { return slices.Contains(c.Roles, role) }

// checkSecret refuses node secrets if none of them sealed the endpoints' secrets: the node
// could sign nothing.
func (p *parts) checkSecret() error {
	for t := range p.store.Catalog.Types() {
		for _, stage := range t.StageNames() {
			for _, e := range t.Endpoints(stage) {
				if err := p.keys.CheckOpen(e); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// prepare collects what the roles run.
func (n *node) prepare() error {
	if n.dispatcher != nil {
		n.runs = append(n.runs, n.dispatcher.Run)
	}
	n.prepareMetrics()
	if n.cfg.has(RoleGovernance) {
		cfg := n.cfg.Governance
		cfg.Log = n.cfg.Log
		g, err := governance.New(n.store, n.committer, cfg)
		if err != nil {
			return err
		}
		n.runs = append(n.runs, g.Run)
	}
	if n.cfg.has(RoleAPI) {
		return n.prepareAPI()
	}
	return nil
}

// run runs all that was prepared. All of it stops when ctx ends, or when one part fails.
func (n *node) run(ctx context.Context, ready func()) error {
	g, ctx := errgroup.WithContext(ctx)
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	if n.watch != nil {
		g.Go(func() error { return n.watch(watching) })
	}
	g.Go(func() error {
		defer stopWatching()
		return n.runAll(ctx, ready)
	})
	return g.Wait()
}

// runAll runs what goes on until the node stops.
func (n *node) runAll(ctx context.Context, ready func()) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		<-ctx.Done()
		n.stopping.Store(true)
		n.cfg.Log.Info("stopping")
		return nil
	})
	for _, run := range n.runs {
		g.Go(func() error { return run(ctx) })
	}
	ready()
	return g.Wait()
}

// NewName returns a name for this process that no other node of the database uses.
func NewName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "node"
	}
	host = strings.ReplaceAll(host, " ", "-")
	now := strconv.FormatInt(time.Now().UnixMilli(), 36)
	return host + "/" + strconv.Itoa(os.Getpid()) + "/" + now
}

// Roles of a node.
const (
	RoleAPI        = "api"
	RoleDispatcher = "dispatcher"
	RoleGovernance = "governance"
)

// AllRoles returns every role.
func AllRoles() []string { return []string{RoleAPI, RoleDispatcher, RoleGovernance} }

// Config is everything that a node needs.
type Config struct {
	Roles []string
	// Secret seals endpoint secrets and signs completion tokens; all nodes of a database
	// share it. What was sealed or signed with OldSecrets is still read.
	Secret     []byte
	OldSecrets [][]byte
	// Grace is how long attempts in flight may take to end after a stop.
	Grace time.Duration

	// DrainDelay is how long the API goes on after Run's context ends, while /readyz answers 503:
	// load balancers need the time to notice. A node that fails doesn't wait.
	DrainDelay time.Duration

	// The role api needs Listener and Tokens. Without an AdminListener, Listener serves
	// the administration as well.
	Listener      net.Listener
	AdminListener net.Listener
	Tokens        *auth.Verifier
	// Issuers keeps Tokens up to date; nil: their issuers don't change.
	Issuers Issuers

	// Console is the web console, which the role api serves; nil: there is none. The node fills
	// in what it shares: secrets, verifier, public URL, version and log.
	Console *console.Config

	// Metrics says where /metrics is served.
	Metrics MetricsMode
	// MetricsListener serves the metrics if they are MetricsApart.
	MetricsListener net.Listener

	// Tracer records spans; nil: none. The caller of Run stops it afterwards.
	Tracer *tracing.Tracer

	// Alerts is where the operator's alerts go.
	Alerts OperatorAlerts

	// The node fills in what the parts share: logs, keys, the sender, the store.
	Store      store.Config
	Callbacks  callbacks.Config
	Dispatcher dispatcher.Config
	Governance governance.Config
	API        httpapi.Config

	Log *slog.Logger
}

// Issuers keeps the issuers of tokens up to date.
type Issuers interface {
	// Run watches them until ctx ends.
	Run(ctx context.Context) error
	// Stale reports whether their newest version can't be used.
	Stale() bool
}

// MetricsMode says where a node serves /metrics.
type MetricsMode int

// Modes of /metrics.
const (
	MetricsOff   MetricsMode = iota // nowhere: nothing is counted
	MetricsOnAPI                    // on the listener of the API, for operators' tokens
	MetricsOpen                     // there, for all who can reach it
	MetricsApart                    // on a listener of their own
)
