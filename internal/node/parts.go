package node

import (
	"context"
	"net"

	"github.com/google/uuid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/metrics"
	"github.com/asyncflow/asyncflow/internal/tracing"
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
		var sender dispatcher.Sender = p.sender
		if cfg.Tracer != nil {
			sender = tracing.NewSender(cfg.Tracer, p.sender)
		}
		p.dispatcher = dispatcher.New(p.committer, sender, d)
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

// prepareMetrics registers what the metrics report of the parts and, if they get a listener of
// their own, collects its server.
func (n *node) prepareMetrics() {
	if n.meter == nil {
		return
	}
	n.meter.Watch(n.store)
	if n.dispatcher != nil {
		n.meter.InFlight(n.dispatcher.InFlight, n.dispatcher.Concurrency())
	}
	if n.cfg.Tracer != nil {
		n.meter.Spans(n.cfg.Tracer.Counts)
	}
	if n.cfg.has(RoleAPI) {
		n.meterTokens()
	}
	if n.cfg.Metrics == MetricsApart {
		n.watch = n.serveMetrics
	}
}

// meterTokens adds whether the keys and issuers of tokens are up to date.
func (n *node) meterTokens() {
	var file func() bool
	if n.cfg.Issuers != nil {
		file = n.cfg.Issuers.Stale
	}
	n.meter.Tokens(n.cfg.Tokens.Stale, file)
}

// OperatorAlerts says where the operator's alerts go. The tenant asyncflow.OperatorTenant
// must exist.
type OperatorAlerts struct {
	URL    string // "": there are none
	Secret string // that signs them: whsec_ and base64
}

// setUp registers the endpoint of the operator's alerts. It leaves one that is already as
// configured, and rules that were added to it.
func (o OperatorAlerts) setUp(ctx context.Context, s *store.Store, keys *callbacks.Keys) error {
	if o.URL == "" {
		return nil
	}
	a, err := s.Alerts(ctx, asyncflow.OperatorTenant)
	switch {
	case err == nil:
		if a.Endpoint.URL == o.URL && signsWith(a.Endpoint, o.Secret, keys) {
			return nil
		}
	case asyncflow.CodeOf(err) == asyncflow.CodeNotFound:
		a.Endpoint.ID = uuid.Must(uuid.NewV7()).String()
	default:
		return err
	}
	secret, err := keys.SigningSecret(o.Secret, a.Endpoint.ID, s.Clock.Now())
	if err != nil {
		return err
	}
	a.Endpoint.URL, a.Endpoint.Secrets = o.URL, []asyncflow.SigningSecret{secret}
	a.Endpoint.Challenged = false // the operator vouches for it
	_, err = s.PutAlerts(ctx, asyncflow.OperatorTenant, a)
	return err
}

// signsWith reports whether an endpoint's newest secret is the given one.
func signsWith(e asyncflow.Endpoint, secret string, keys *callbacks.Keys) bool {
	if len(e.Secrets) == 0 {
		return false
	}
	kept, err := keys.Open(e.Secrets[0].Sealed, e.ID)
	return err == nil && kept == secret
}
