package node

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/governance"
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
	// watch goes on until all of runs have ended, so that operators see the node stop; nil: none
	watch func(context.Context) error
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
		n.cfg.Log.Info("stopping")
		return nil
	})
	for _, run := range n.runs {
		g.Go(func() error { return run(ctx) })
	}
	ready()
	return g.Wait()
}

// NewName returns a name for this process that no other node of the database has.
func NewName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "node"
	}
	host = strings.ReplaceAll(host, " ", "-")
	now := strconv.FormatInt(time.Now().UnixMilli(), 36)
	return host + "/" + strconv.Itoa(os.Getpid()) + "/" + now
}
