package node

import (
	"context"
	"net"

	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/metrics"
	"github.com/asyncflow/asyncflow/store"
)

// parts are what the hot path of a node consists of, and what its other parts stand on.
type parts struct {
	keys       *callbacks.Keys
	meter      *metrics.Metrics // nil: metrics are off
	store      *store.Store
	committer  *dispatcher.Committer
	sender     *callbacks.Sender
	dispatcher *dispatcher.Dispatcher // nil without its role
}

// newParts connects to the database and constructs the parts. None of them runs yet. The
// caller closes them.
func newParts(ctx context.Context, cfg Config) (*parts, error) {
	p := &parts{}
	var err error
	if p.keys, err = callbacks.NewKeys(cfg.Secret, cfg.OldSecrets...); err != nil {
		return nil, err
	}
	database := cfg.Store
	database.PublicURL = cfg.Callbacks.PublicURL
	if cfg.Metrics != MetricsOff {
		p.meter = metrics.New(database.Build)
		database.Meter = p.meter
	}
	if p.store, err = store.Open(ctx, database); err != nil {
		return nil, err
	}
	p.committer = dispatcher.NewCommitter(p.store, cfg.Log)
	wire := cfg.Callbacks
	wire.Connections, wire.MaxOutput = cfg.Dispatcher.Concurrency, cfg.API.MaxContext
	wire.Log, wire.OwnPorts = cfg.Log, cfg.ownPorts()
	p.sender = callbacks.NewSender(wire, p.keys)
	if cfg.has(RoleDispatcher) {
		d := cfg.Dispatcher
		d.Grace, d.Log = cfg.Grace, cfg.Log
		p.dispatcher = dispatcher.New(p.committer, p.sender, d)
	}
	return p, nil
}

// ownPorts returns the ports at which the node listens.
func (c Config) ownPorts() (ports []uint16) {
	for _, l := range []net.Listener{c.Listener, c.AdminListener, c.MetricsListener} {
		if l == nil {
			continue
		}
		if at, ok := l.Addr().(*net.TCPAddr); ok {
			ports = append(ports, uint16(at.Port))
		}
	}
	return ports
}

// close waits for what is still to be written, and closes the connections.
func (p *parts) close() {
	p.committer.Close()
	p.store.Close()
}
