package httpapi

import (
	"maps"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// Routes returns the routes of the fiber app.
func (s *Server) Routes() []fiber.Route { return s.app.GetRoutes(true) }

// Handle answers a request without a connection.
func (s *Server) Handle(c *fasthttp.RequestCtx) { s.app.Handler()(c) }

// SubmittedDocument returns the document of an accepted task as the API writes it, and as package
// json writes it.
func SubmittedDocument(r store.Submitted) (written, encoded []byte) {
	encoded, _ = encode(submittedOut(r))
	return submittedLine(&r), encoded
}

// BodyMemory returns how much memory is lent for the bodies of requests, in bytes.
func (s *Server) BodyMemory() int { return s.bodies.InUse() }

// AnswerMemory returns how much memory is lent for answers that are not sent yet, in bytes.
func (s *Server) AnswerMemory() int { return s.answers.InUse() }

// ChargeCheckpoints makes a tenant wait for a long time before it may write checkpoints.
func (s *Server) ChargeCheckpoints(tenant string) {
	s.checkpoints.Charge(tenant, checkpointRate, 3600*checkpointRate, time.Now())
}

// HoldLinks takes all places of a tenant for links until end is called.
func (s *Server) HoldLinks(tenant string) (end func()) {
	_ = s.links.Take(tenant, maxLinksPerTenant)
	return func() { s.links.Give(tenant, maxLinksPerTenant) }
}

// ChargeLinks makes a tenant wait for a long time before its links are opened again.
func (s *Server) ChargeLinks(tenant string) {
	s.linkRates.Charge(tenant, linksPerSecond, 3600*linksPerSecond, time.Now())
}

// Arrivals returns of how many claims it is not known yet whether they arrived.
func (s *Server) Arrivals() int { return s.arrived.InUse() }

// MaxArrivalsPerTenant is the most of these of one tenant.
const MaxArrivalsPerTenant = maxArrivalsPerTenant

// Streams returns how many event streams and waiting calls there are.
func (s *Server) Streams() int { return s.streams.InUse() }

// StatsFeeds returns how many tenants' stats are read for streams.
func (s *Server) StatsFeeds() int {
	s.statsFeeds.mu.Lock()
	defer s.statsFeeds.mu.Unlock()
	return len(s.statsFeeds.byTenant)
}

// ErrorCodes returns the codes of problems.
func ErrorCodes() []asyncflow.Code { return slices.Collect(maps.Keys(statusOf)) }

// CompareHealth orders tenants, the worst first.
var CompareHealth = compareHealth
