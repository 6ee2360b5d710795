package callbacks

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks/internal/transport"
)

// defaultConnections is how many idle connections are kept for each host.
const defaultConnections = 256

// Config says how deliveries are sent.
type Config struct {
	// PublicURL is where workers reach this API, such as https://tasks.example.com.
	PublicURL string
	// Version is sent in User-Agent.
	Version string
	// MaxOutput bounds the output in a worker's answer, in bytes, as contexts are bounded; 0: 256
	// KiB. The rest of the answer may take 16 KiB.
	MaxOutput int
	// Connections bounds the idle connections kept for each host; 0: 256. The bound for all hosts
	// is four times as high.
	Connections int
	// Egress is the operator's policy for where deliveries may go.
	Egress asyncflow.Egress
	// OwnPorts are the ports at which the node itself listens: on this machine's addresses, they
	// are part of a special network.
	OwnPorts []uint16
	// Log gets a warning when a worker answers about tasks that it wasn't sent; nil: no log.
	Log *slog.Logger
	// Resolver resolves the names of endpoints; nil: the system's resolver.
	Resolver *net.Resolver
}

// Sender sends deliveries and challenges. It is safe for concurrent use.
type Sender struct {
	cfg    Config
	keys   *Keys
	opened *cache[*opened] // by endpoint
	routes *routes
	tokens *tokens

	userAgent transport.Header
}

// NewSender returns a Sender.
func NewSender(cfg Config, keys *Keys) *Sender {
	return newSender(cfg, keys, newGuard(cfg).DialContext)
}

func newSender(cfg Config, keys *Keys, dial transport.DialFunc) *Sender {
	if cfg.MaxOutput == 0 {
		cfg.MaxOutput = asyncflow.DefaultMaxContext
	}
	if cfg.Connections == 0 {
		cfg.Connections = defaultConnections
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	routes := newRoutes(cfg, dial)
	return &Sender{
		cfg:       cfg,
		keys:      keys,
		opened:    newCache[*opened](maxOpenedBytes),
		routes:    routes,
		tokens:    newTokens(routes, cfg.Egress),
		userAgent: transport.Header{Name: "User-Agent", Value: "asyncflow/" + cfg.Version},
	}
}

// NewTransport returns the transport that a Sender of this Config uses for endpoints without
// settings. Benchmarks compare with it.
func NewTransport(cfg Config) http.RoundTripper {
	return newRoutes(cfg, newGuard(cfg).DialContext).plain
}

// Send attempts some deliveries of a stage to one endpoint, in one request. It returns their
// outcomes in the same order. It ends within the timeout of the first delivery, or when ctx ends.
func (s *Sender) Send(ctx context.Context, all []asyncflow.Delivery) []asyncflow.Outcome {
	start := time.Now()
	outcomes, _ := s.attempt(ctx, all, newLimit(all[0].Timeout))
	took := time.Since(start)
	for i := range outcomes {
		outcomes[i].Endpoint = cmp.Or(outcomes[i].Endpoint, all[0].Endpoint.URL)
		outcomes[i].Duration = took
	}
	return outcomes
}

// attempt also returns the exchange. It is empty if the endpoint can't be opened.
func (s *Sender) attempt(
	ctx context.Context, all []asyncflow.Delivery, l limit,
) ([]asyncflow.Outcome, exchange) {
	first := all[0]
	if first.Lease.Options.Notification != nil {
		o, x := s.notify(ctx, &first, l)
		return toAll(all[:1], o), x
	}
	to, err := s.open(first.Tenant, first.Endpoint)
	if err != nil {
		return toAll(all, failed(err)), exchange{}
	}
	m := message{id: deliveryID(first.Lease), at: first.At, body: s.body(all),
		maxAnswer: s.maxAnswer(len(all)), test: first.Test}
	if m.trace = first.RequestTrace; len(all) == 1 {
		m.trace = cmp.Or(first.Traceparent, first.Lease.Options.Trace)
	}
	x, err := s.post(ctx, l, first.Endpoint, to, m)
	var outcomes []asyncflow.Outcome
	if err != nil {
		outcomes = toAll(all, failed(err))
	} else {
		outcomes = s.read(all, x.answer)
	}
	worker := ""
	if named := x.answer.Header[asyncflow.WorkerHeader]; len(named) > 0 {
		worker = asyncflow.WorkerName(named[0])
	}
	for i := range outcomes {
		outcomes[i].Error = x.scrub(outcomes[i].Error)
		outcomes[i].Worker = worker
	}
	return outcomes, x
}

// read returns what an answer means for each of some deliveries.
func (s *Sender) read(all []asyncflow.Delivery, a transport.Answer) []asyncflow.Outcome {
	if !all[0].Endpoint.Batch.IsZero() {
		o, more := readStatus(a, resultsFields)
		if more {
			return s.readResults(all, o, a.ContentType(), a.Body)
		}
		return toAll(all, o)
	}
	o, more := readStatus(a, answerFields)
	if more {
		o = readAnswer(o, a.ContentType(), a.Body, s.cfg.MaxOutput)
	}
	return toAll(all, o)
}

// toAll returns one outcome for each of some deliveries.
func toAll(all []asyncflow.Delivery, o asyncflow.Outcome) []asyncflow.Outcome {
	outcomes := make([]asyncflow.Outcome, len(all))
	for i := range outcomes {
		outcomes[i] = o
	}
	return outcomes
}

func failed(err error) asyncflow.Outcome {
	return asyncflow.Outcome{
		Kind:    asyncflow.OutcomeFailed,
		Error:   Clean(err.Error(), MaxErrorBytes),
		Failure: failureCode(err),
	}
}
