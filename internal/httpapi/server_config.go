package httpapi

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/contract"
	"github.com/asyncflow/asyncflow/internal/tracing"
	"github.com/asyncflow/asyncflow/store"
)

// Config says what the API serves, and its limits.
type Config struct {
	Store *store.Store
	// Committer takes new tasks and reports. It is over Store.
	Committer *dispatcher.Committer
	Verifier  *auth.Verifier
	Keys      *callbacks.Keys
	Version   string

	// MaxBody bounds a request's body in bytes; 0: 16 MiB.
	MaxBody int
	// MaxContext bounds the context of one task in bytes; 0: 256 KiB.
	MaxContext int
	// Egress is the operator's policy for where deliveries may go. Endpoints that it doesn't
	// allow can't be registered.
	Egress asyncflow.Egress
	// Sender challenges endpoints; nil: a sender that keeps to Egress.
	Sender *callbacks.Sender
	// VerifyEndpoints makes endpoints prove their owner before they get deliveries.
	VerifyEndpoints bool
	// Surface is the part of the API that is served; "": all of it.
	Surface Surface
	// WriteTimeout bounds how long the client may take to read an answer or, of a stream, each
	// part. 0: the longest wait for a final state, and 30 s.
	WriteTimeout time.Duration
	// ClaimCheck is when it is looked whether a claimer's connection took the answer. 0: 5 s.
	ClaimCheck time.Duration
	// TrustedProxies are the proxies with a trusted X-Forwarded-For.
	TrustedProxies []netip.Prefix
	// Tracer records calls; nil: none.
	Tracer *tracing.Tracer
	// Metrics answers /metrics; nil: /metrics is not found.
	Metrics http.Handler
	// OperatorMetrics is whether /metrics needs an admin token.
	OperatorMetrics bool
	// Console is the web console; nil: there is none. It is on every surface.
	Console Console
	// Streams bounds the event streams and the calls that wait.
	Streams StreamConfig
	// Bodies bounds the memory for the bodies of requests.
	Bodies BodyConfig
	// Connections bounds the connections.
	Connections ConnectionConfig

	Log *slog.Logger
}

// defaultWriteTimeout includes the longest wait for a final state.
const defaultWriteTimeout = asyncflow.MaxWait + 30*time.Second

func (cfg Config) withDefaults() Config {
	cfg.MaxBody = cmp.Or(cfg.MaxBody, 16<<20)
	cfg.MaxContext = cmp.Or(cfg.MaxContext, asyncflow.DefaultMaxContext)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, defaultWriteTimeout)
	cfg.ClaimCheck = cmp.Or(cfg.ClaimCheck, 5*time.Second)
	cfg.Streams = cfg.Streams.withDefaults()
	cfg.Bodies = cfg.Bodies.withDefaults()
	cfg.Connections = cfg.Connections.withDefaults()
	if cfg.Sender == nil {
		sender := callbacks.Config{Version: cfg.Version, Egress: cfg.Egress}
		cfg.Sender = callbacks.NewSender(sender, cfg.Keys)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return cfg
}

// ConnectionConfig bounds the connections of a node. Zero values are the defaults.
type ConnectionConfig struct {
	Max           int           // at once; 0: 10,000
	MaxAnonymous  int           // at once on which no token let a call in; 0: half of Max
	MaxPerAddress int           // at once from one IPv4 address or IPv6 /64; 0: as many as Max
	ReadTimeout   time.Duration // for a whole request, from its first byte to its last; 0: 30 s
	IdleTimeout   time.Duration // between two requests; 0: 2 minutes
}

// defaultMaxConnections is the default of ConnectionConfig.Max.
const defaultMaxConnections = 10_000

func (c ConnectionConfig) withDefaults() ConnectionConfig {
	c.Max = cmp.Or(c.Max, defaultMaxConnections)
	c.MaxAnonymous = cmp.Or(c.MaxAnonymous, max(1, c.Max/2))
	c.ReadTimeout = cmp.Or(c.ReadTimeout, 30*time.Second)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 2*time.Minute)
	return c
}

// Surface is a part of the API that is served at an address of its own.
type Surface string

// The parts of the API. Calls for load balancers and people, such as /healthz, are in each part.
const (
	SurfaceAll    Surface = ""
	SurfacePublic Surface = "public" // what tenants and workers call
	SurfaceAdmin  Surface = "admin"  // what needs an operator's token
)

// has reports whether an operation is on the surface. Other operations are answered like paths
// that don't exist.
func (s Surface) has(o *contract.Operation) bool {
	admin := o.Access == contract.AccessToken && o.Scopes[auth.KindTenant] == ""
	switch s {
	case SurfacePublic:
		return !admin
	case SurfaceAdmin:
		return admin || o.Access == contract.AccessOpen
	}
	return true
}
