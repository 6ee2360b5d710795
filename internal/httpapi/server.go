package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"golang.org/x/time/rate"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/docspage"
	"github.com/asyncflow/asyncflow/store"
)

// Config says what the API serves and its limits.
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
	// Egress is the operator's policy for where deliveries may go: an endpoint that it is
	// against isn't registered.
	Egress asyncflow.Egress
	// Sender challenges endpoints; nil: one that is guarded by Egress.
	Sender *callbacks.Sender
	// VerifyEndpoints has endpoints prove whose they are before they get deliveries.
	VerifyEndpoints bool
	// Surface says which calls are answered; "": all.
	Surface Surface
	// WriteTimeout bounds how long an answer waits to be taken; of a stream, each
	// part of it. 0: the longest wait for a final state and 30 s.
	WriteTimeout time.Duration
	// TrustedProxies are those whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix
	// Metrics answers /metrics; nil: nothing does.
	Metrics http.Handler
	// Streams bounds the event streams and the calls that wait.
	Streams StreamConfig
	// Bodies bounds the memory for the bodies of requests.
	Bodies BodyConfig
	// Connections bounds the connections.
	Connections ConnectionConfig

	Log *slog.Logger
}

// writeTimeout is that of an answer, unless configured. It includes the longest wait for
// a final state.
const writeTimeout = asyncflow.MaxWait + 30*time.Second

// Server is the HTTP API of a node.
type Server struct {
	cfg      Config
	log      *slog.Logger
	app      *fiber.App
	contract *contract
	stopping context.Context // done when waiting calls should answer
	stop     context.CancelFunc
	streams  *shares                // event streams and calls that wait
	bodies   *shares                // bytes of requests' bodies
	answers  *shares                // bytes of answers that nobody has taken yet
	docs     func() ([]byte, error) // the page of the contract

	throttles throttles
	denied    *deniedCalls
}

// New returns a server that is not listening yet.
func New(cfg Config) (*Server, error) {
	if cfg.MaxBody == 0 {
		cfg.MaxBody = 16 << 20
	}
	if cfg.MaxContext == 0 {
		cfg.MaxContext = asyncflow.DefaultMaxContext
	}
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = writeTimeout
	}
	cfg.Streams = cfg.Streams.withDefaults()
	cfg.Bodies = cfg.Bodies.withDefaults()
	if err := cfg.Bodies.check(cfg.MaxBody); err != nil {
		return nil, err
	}
	cfg.Connections = cfg.Connections.withDefaults()
	if cfg.Sender == nil {
		cfg.Sender = callbacks.NewSender(callbacks.Config{Version: cfg.Version, Egress: cfg.Egress}, cfg.Keys)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	doc, err := document()
	if err != nil {
		return nil, err
	}
	c, err := newContract(doc)
	if err != nil {
		return nil, err
	}
	c.keep(cfg.Surface)
	s := &Server{cfg: cfg, log: cfg.Log, contract: c, throttles: throttles{tenants: map[string]*rate.Limiter{}}}
	s.streams = newShares(cfg.Streams.Max, cfg.Streams.MaxPerTenant, "event streams and waiting calls", 5*time.Second)
	s.bodies = newShares(cfg.Bodies.Max, cfg.Bodies.MaxPerTenant, "bytes of requests", time.Second)
	s.answers = newShares(cfg.Bodies.Max, cfg.Bodies.MaxPerTenant, "bytes of answers", time.Second)
	s.denied = newDeniedCalls(cfg.Store.RecordAll, cfg.Store.Clock.Now, cfg.Log)
	s.docs = sync.OnceValues(func() ([]byte, error) { return docspage.Make(c.doc) })
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.app = fiber.New(fiber.Config{
		AppName:               "asyncflow",
		DisableStartupMessage: true,
		CaseSensitive:         true, // one spelling for each path, as the contract has it
		StrictRouting:         true,
		Immutable:             true,      // strings of a request outlive its handler
		BodyLimit:             readAhead, // what is read of a body before the handler; see bodies.go
		StreamRequestBody:     true,
		ReadTimeout:           cfg.Connections.ReadTimeout,
		WriteTimeout:          cfg.WriteTimeout,
		IdleTimeout:           cfg.Connections.IdleTimeout,
		ReadBufferSize:        headerLimit,
		ErrorHandler:          s.writeError,

		// The server would parse a form up to its closing boundary and take what follows of the
		// body for the next request.
		DisablePreParseMultipartForm: true,

		JSONDecoder: api.Decode,
		JSONEncoder: encode,
	})
	s.app.Use(s.begin)
	s.app.Use(s.admit)
	s.app.Post("/v1/tasks", s.submitTask)
	s.app.Post("/v1/tasks/batch", s.submitTasks)
	s.app.Post("/v1/callbacks/:id/complete", s.completeTask)
	s.app.Post("/v1/callbacks/:id/fail", s.failTask)
	RegisterHandlers(s.app, NewStrictHandler(s, nil))
	s.harden(s.app.Server())
	return s, nil
}

// Serve answers requests on a listener until Shutdown, also one that came before.
func (s *Server) Serve(l net.Listener) error {
	go s.denied.run(s.stopping)
	d := newDoor(l, s.cfg.Connections, s.log)
	defer context.AfterFunc(s.stopping, func() { _ = d.Close() })() // fiber does it for listeners that it knows by then
	return s.app.Listener(d)
}

// Shutdown takes no new requests, has waiting calls answer, and waits for the
// others up to a time.
func (s *Server) Shutdown(timeout time.Duration) error {
	s.stop()
	defer s.denied.flush(true)
	return s.app.ShutdownWithTimeout(timeout)
}

// encode writes JSON for programs and people: without escapes for HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}
