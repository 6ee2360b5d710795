package httpapi

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/coalesce"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/contract"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/deniedcalls"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/listener"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/ratelimit"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/share"
	"github.com/asyncflow/asyncflow/store"
)

// Server is the HTTP API of a node. It is one type with a method for each call, as the interface is
// that is generated from openapi.yaml.
type Server struct {
	cfg      Config
	log      *slog.Logger
	app      *fiber.App
	contract *contract.Contract
	stopping context.Context // done when waiting calls should answer
	stop     context.CancelFunc
	draining atomic.Bool // callers should go to other nodes

	streams *share.Pool // event streams and calls that wait
	bodies  *share.Pool // bytes of the bodies of requests
	answers *share.Pool // bytes of answers that are not sent yet
	tests   *share.Pool // test deliveries
	links   *share.Pool // links that people open
	arrived *share.Pool // claims that are perhaps still to arrive

	pings       *coalesce.Runs[struct{}] // checks of the database
	lastPing    atomic.Pointer[pinged]   // the last of them
	statsFeeds  *statsFeeds
	submitRates ratelimit.Tenants
	testRates   ratelimit.Tenants
	linkRates   ratelimit.Tenants
	checkpoints ratelimit.Tenants // in bytes
	denied      *deniedcalls.Counter
}

// New returns a server that is not listening yet.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Bodies.check(cfg.MaxBody); err != nil {
		return nil, err
	}
	c, err := contract.New(cfg.Surface.has)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: cfg.Log, contract: c}
	s.streams = share.NewPool(cfg.Streams.Max, cfg.Streams.MaxPerTenant,
		"event streams and waiting calls", 5*time.Second)
	s.bodies = share.NewPool(cfg.Bodies.Max, cfg.Bodies.MaxPerTenant,
		"bytes of requests", time.Second)
	s.answers = share.NewPool(cfg.Bodies.Max, cfg.Bodies.MaxPerTenant,
		"bytes of answers", time.Second)
	s.tests = share.NewPool(maxTests, maxTestsPerTenant, "test deliveries", time.Second)
	s.links = share.NewPool(maxLinks, maxLinksPerTenant, "links", time.Second)
	s.arrived = share.NewPool(maxArrivals, maxArrivalsPerTenant, "claims", s.cfg.ClaimCheck)
	s.denied = deniedcalls.New(cfg.Store.RecordAll, cfg.Store.Clock.Now, cfg.Log)
	s.pings = coalesce.New(readyTimeout, s.ping)
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.statsFeeds = newStatsFeeds(s.stopping,
		func(ctx context.Context, tenant string) ([]store.Stats, error) {
			return cfg.Store.Stats(ctx, tenant, "")
		})
	s.app = s.newApp()
	s.installHooks(s.app.Server())
	return s, nil
}

// newApp returns the fiber app with all routes.
func (s *Server) newApp() *fiber.App {
	app := fiber.New(fiber.Config{
		AppName:               "asyncflow",
		DisableStartupMessage: true,
		CaseSensitive:         true, // the one spelling of each path is the contract's
		StrictRouting:         true,
		Immutable:             true,      // strings of a request outlive its handler
		BodyLimit:             readAhead, // read before the handler; see request_body.go
		StreamRequestBody:     true,
		ReadTimeout:           s.cfg.Connections.ReadTimeout,
		WriteTimeout:          s.cfg.WriteTimeout,
		IdleTimeout:           s.cfg.Connections.IdleTimeout,
		ReadBufferSize:        headerLimit,
		ErrorHandler:          s.writeError,

		// fasthttp would parse a form up to its closing boundary, and take the rest of the body
		// for the next request.
		DisablePreParseMultipartForm: true,

		JSONDecoder: api.Decode,
		JSONEncoder: encode,
	})
	app.Use(s.begin)
	app.Use(s.frame)
	if s.cfg.Console != nil {
		app.Use(s.console)
	}
	app.Use(s.admit)
	app.Post("/v1/tasks", s.submitTask)
	app.Post("/v1/tasks/batch", s.submitTasks)
	app.Post("/v1/claims", s.claimTasks)
	app.Post("/v1/callbacks/:id/complete", s.completeTask)
	app.Post("/v1/callbacks/:id/fail", s.failTask)
	app.Post("/v1/callbacks/:id/heartbeat", s.heartbeat)
	app.Post("/v1/callbacks/:id/progress", s.reportProgress)
	app.Get("/v1/callbacks/:id/input", s.readInput)
	app.Get("/v1/callbacks/:id/outputs/:stage", s.readOutput)
	app.Get("/l/:token", s.showLink)
	app.Post("/l/:token", s.decideLink)
	handler := NewStrictHandler(s, nil)
	// The one of /v1/tasks/:id would take it: RegisterHandlers comes to that first.
	app.Get("/v1/tasks/count", (&ServerInterfaceWrapper{Handler: handler}).GetTaskCount)
	RegisterHandlers(app, handler)
	return app
}

// Serve answers requests on a listener until Shutdown, even if Shutdown was called before.
func (s *Server) Serve(l net.Listener) error {
	go s.denied.Run(s.stopping)
	if s.cfg.Surface != SurfaceAdmin {
		go s.followCharges(s.stopping)
	}
	limits := listener.Limits{
		Max:           s.cfg.Connections.Max,
		MaxAnonymous:  s.cfg.Connections.MaxAnonymous,
		MaxPerAddress: s.cfg.Connections.MaxPerAddress,
	}
	limited := listener.New(l, limits, refusal, s.log)
	// fiber closes only listeners that it knows when it is shut down.
	defer context.AfterFunc(s.stopping, func() { _ = limited.Close() })()
	return s.app.Listener(limited)
}

// Drain sends callers to other nodes while the server still answers: /readyz answers 503, so that
// load balancers choose another node, and every connection closes after its next answer.
func (s *Server) Drain() { s.draining.Store(true) }

// Shutdown takes no new requests, makes waiting calls answer, and waits up to a timeout for the
// other calls.
func (s *Server) Shutdown(timeout time.Duration) error {
	s.stop()
	defer s.denied.Flush()
	return s.app.ShutdownWithTimeout(timeout)
}
