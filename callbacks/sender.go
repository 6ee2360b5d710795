package callbacks

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/signing"
)

// Config says how deliveries are sent.
type Config struct {
	// PublicURL is where workers reach this API, such as https://tasks.example.com.
	PublicURL string
	// Version goes into the User-Agent.
	Version string
	// MaxOutput bounds the output in a worker's answer in bytes, as a context is
	// bounded; 0: 256 KiB. The answer around it may have 16 KiB more.
	MaxOutput int
	// Connections bounds the idle connections kept for each host; 0: 256. Four times as many
	// are kept in all.
	Connections int
	// Egress is the operator's policy for where deliveries may go.
	Egress asyncflow.Egress
	// Log is told of answers about tasks that weren't asked for; nil: nothing is.
	Log *slog.Logger
	// Resolver resolves the names of endpoints; nil: as the system does.
	Resolver *net.Resolver
}

// Sender sends deliveries and challenges. It is safe for concurrent use.
type Sender struct {
	cfg    Config
	keys   *Keys
	client *retryablehttp.Client
	opened *cache[*opened] // by endpoint
	routes *routes
	tokens *tokens

	userAgent signing.Header
}

// NewSender returns a Sender.
func NewSender(cfg Config, keys *Keys) *Sender {
	if cfg.MaxOutput == 0 {
		cfg.MaxOutput = asyncflow.DefaultMaxContext
	}
	if cfg.Connections == 0 {
		cfg.Connections = 256
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	pool := newIdle(cfg)
	routes := newRoutes(cfg, pool)
	return &Sender{cfg: cfg, keys: keys, client: newClient(newTransport(cfg, nil, pool)),
		opened: newCache[*opened](maxOpenedBytes), routes: routes, tokens: newTokens(routes),
		userAgent: signing.Header{Name: "User-Agent", Value: "asyncflow/" + cfg.Version}}
}

// newClient returns a client that sends each request once: every attempt must be
// recorded, so trying again is the store's business.
func newClient(transport http.RoundTripper) *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.RetryMax = 0
	c.CheckRetry = once
	c.Logger = nil
	c.ErrorHandler = retryablehttp.PassthroughErrorHandler // errors as they are
	c.HTTPClient = &http.Client{Transport: transport, CheckRedirect: noRedirects}
	return c
}

// once is a retry policy without retries. The library's own would take an answer that came with
// the end of its context for an error, and leave its body open.
func once(context.Context, *http.Response, error) (bool, error) { return false, nil }

func noRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Send makes an attempt at each of some deliveries of a stage to one endpoint, in one
// request, and returns what came of each, in their order. It ends within the timeout of
// the first, or when ctx does.
func (s *Sender) Send(ctx context.Context, all []asyncflow.Delivery) []asyncflow.Outcome {
	start := time.Now()
	r := newRequestContext(ctx, all[0].Timeout)
	defer r.end()
	outcomes := s.exchange(r, all)
	took := time.Since(start)
	for i := range outcomes {
		outcomes[i].Endpoint, outcomes[i].Duration = all[0].Endpoint.URL, took
	}
	return outcomes
}

func (s *Sender) exchange(r *requestContext, all []asyncflow.Delivery) []asyncflow.Outcome {
	to, err := s.open(all[0].Tenant, all[0].Endpoint)
	if err != nil {
		return toAll(all, failed(err))
	}
	outcomes := s.deliver(r, all, to)
	for i := range outcomes {
		outcomes[i].Error = to.settings.scrub(outcomes[i].Error, r.headers)
	}
	return outcomes
}

func (s *Sender) deliver(r *requestContext, all []asyncflow.Delivery,
	to *opened) []asyncflow.Outcome {
	first, body := all[0], bodies.Get().(*[]byte)
	*body = s.appendBody((*body)[:0], all)
	if len(*body) <= inOneGo { // else somebody may still write it once all is over
		defer bodies.Put(body)
	}
	resp, err := s.post(r, first.Endpoint, to, deliveryID(first.Lease), first.At, *body)
	if err != nil {
		return toAll(all, failed(reason(r, err, first.Timeout)))
	}
	return s.read(r, all, resp)
}

// bodies are buffers for short bodies of requests.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

// read returns what the answer to some deliveries means for each.
func (s *Sender) read(ctx context.Context, all []asyncflow.Delivery, resp *http.Response) []asyncflow.Outcome {
	first := all[0]
	defer resp.Body.Close()
	o, answer, more := readStatus(resp, s.mostAnswer(len(all)))
	switch {
	case more && !first.Endpoint.Batch.IsZero():
		return s.readResults(all, o, resp.Header.Get("Content-Type"), answer)
	case more:
		o = readAnswer(o, resp.Header.Get("Content-Type"), answer, s.cfg.MaxOutput)
	case ctx.Err() != nil && o.Kind == asyncflow.OutcomeFailed && o.Status/100 == 2:
		o = failed(reason(ctx, ctx.Err(), first.Timeout)) // the answer broke off because time was up
	}
	return toAll(all, o)
}

// toAll returns the same outcome for each of some deliveries.
func toAll(all []asyncflow.Delivery, o asyncflow.Outcome) []asyncflow.Outcome {
	outcomes := make([]asyncflow.Outcome, len(all))
	for i := range outcomes {
		outcomes[i] = o
	}
	return outcomes
}

func failed(err error) asyncflow.Outcome {
	return asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: Clean(err.Error(), MaxErrorBytes)}
}

// reason says in plain words why there was no answer.
func reason(ctx context.Context, err error, timeout time.Duration) error {
	switch {
	case errors.Is(err, errPrivate):
		return errPrivate
	case errors.Is(err, errRule):
		return errRule
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errors.New("no answer within " + timeout.String())
	case ctx.Err() != nil:
		return errors.New("the node stopped before the answer came")
	}
	return err
}

// post sends a signed body to an endpoint, with its settings. One that is answered with 401 has
// its next request log in anew.
func (s *Sender) post(r *requestContext, e *asyncflow.Endpoint, to *opened, id string,
	at time.Time, body []byte) (*http.Response, error) {
	req, err := newRequest(r, to.target, body)
	if err == nil {
		r.headers, err = s.appendHeaders(r.headers, e, to, id, at, body)
	}
	client, used := s.client, login{}
	if err == nil && to.settings != nil {
		used, client, err = s.apply(r, to)
	}
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		used.refused()
	}
	return resp, err
}

// newRequest returns a request with its body. http.NewRequest would read the URL anew, and
// give the request a host of its own, for which http.Client copies the URL.
func newRequest(ctx context.Context, to *url.URL, body []byte) (*retryablehttp.Request, error) {
	plain := http.Request{Method: http.MethodPost, URL: to, Header: http.Header{}}
	req, err := retryablehttp.FromRequest(plain.WithContext(ctx))
	if err == nil {
		err = req.SetBody(body)
	}
	return req, err
}

// apply sets the headers that an endpoint's settings ask for, and returns how it has logged
// in, and the client that has its certificates.
func (s *Sender) apply(r *requestContext, to *opened) (login, *retryablehttp.Client, error) {
	used, err := s.tokens.apply(r, to, &r.headers)
	if err == nil {
		err = r.headers.check()
	}
	if err != nil {
		return login{}, nil, err
	}
	client, err := s.routes.to(to.tenant, to.settings.tls)
	return used, client, err
}

// permits checks where a request goes: the policy may be newer than the endpoint.
func (s *Sender) permits(to *url.URL) error {
	if why := s.cfg.Egress.Refuses(to); why != "" {
		return errors.New("the endpoint's URL " + why)
	}
	return nil
}

// appendHeaders appends the headers that each request to an endpoint has.
func (s *Sender) appendHeaders(h headers, e *asyncflow.Endpoint, to *opened, id string,
	at time.Time, body []byte) (headers, error) {
	h = append(h, signing.Header{Name: "Content-Type", Value: "application/json"}, s.userAgent)
	return to.sign(h, e, id, at, body)
}

// lateReports is how long after the deadline of an attempt its token still verifies,
// so that a worker that is late, or didn't get the answer to its report, hears what
// became of it.
const lateReports = time.Hour
