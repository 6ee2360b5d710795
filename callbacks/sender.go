package callbacks

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/asyncflow/asyncflow"
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
	// Connections bounds the idle connections kept for each host; 0: 256.
	Connections int
	// Egress is the operator's policy for where deliveries may go.
	Egress asyncflow.Egress
	// Resolver resolves the names of endpoints; nil: as the system does.
	Resolver *net.Resolver
}

// Sender sends deliveries. It is safe for concurrent use.
type Sender struct {
	cfg     Config
	keys    *Keys
	client  *retryablehttp.Client
	signers sync.Map // of sealed secret to signer
	known   atomic.Int64
}

// NewSender returns a Sender.
func NewSender(cfg Config, keys *Keys) *Sender {
	if cfg.MaxOutput == 0 {
		cfg.MaxOutput = asyncflow.DefaultMaxContext
	}
	if cfg.Connections == 0 {
		cfg.Connections = 256
	}
	return &Sender{cfg: cfg, keys: keys, client: newClient(cfg)}
}

// newClient returns a client that sends each request once: every attempt must be
// recorded, so trying again is the store's business.
func newClient(cfg Config) *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.RetryMax = 0
	c.Logger = nil
	c.ErrorHandler = retryablehttp.PassthroughErrorHandler // a 503 keeps its body and Retry-After
	c.HTTPClient = &http.Client{
		Transport:     newTransport(cfg),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// Send makes one attempt and returns what came of it. It ends within the
// delivery's timeout, or when ctx does.
func (s *Sender) Send(ctx context.Context, d asyncflow.Delivery) asyncflow.Outcome {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	o := s.exchange(ctx, d)
	o.Endpoint, o.Duration = d.Endpoint.URL, time.Since(start)
	return o
}

func (s *Sender) exchange(ctx context.Context, d asyncflow.Delivery) asyncflow.Outcome {
	req, err := s.request(ctx, d)
	if err != nil {
		return failed(err)
	}
	if why := s.cfg.Egress.Refuses(req.URL); why != "" { // the policy may be newer than the endpoint
		return failed(errors.New("the endpoint's URL " + why))
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return failed(reason(ctx, err, d.Timeout))
	}
	defer resp.Body.Close()
	defer context.AfterFunc(ctx, func() { resp.Body.Close() })() // whatever kind of body it is
	o := readAnswer(resp, s.cfg.MaxOutput)
	if ctx.Err() != nil && o.Kind == asyncflow.OutcomeFailed && o.Status >= 200 && o.Status < 300 {
		return failed(reason(ctx, ctx.Err(), d.Timeout)) // the answer broke off because time was up
	}
	return o
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

// request returns the signed request of a delivery.
func (s *Sender) request(ctx context.Context, d asyncflow.Delivery) (*retryablehttp.Request, error) {
	sign, err := s.signerFor(d.Endpoint)
	if err != nil {
		return nil, err
	}
	token := s.keys.CompletionToken(Completion{Tenant: d.Tenant, Task: d.Lease.ID, Seq: d.Lease.Seq, Expiry: d.Deadline.Add(lateReports), Endpoint: d.Endpoint.ID})
	body := envelope(d, s.cfg.PublicURL, token)
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, d.Endpoint.URL, body)
	if err != nil {
		return nil, err
	}
	req.Header["Content-Type"] = contentType
	req.Header["User-Agent"] = []string{"asyncflow/" + s.cfg.Version}
	return req, sign.sign(req.Header, deliveryID(d.Lease), d.At, body)
}

// lateReports is how long after the deadline of an attempt its token still verifies,
// so that a worker that is late, or didn't get the answer to its report, hears what
// became of it.
const lateReports = time.Hour

var contentType = []string{"application/json"}

// signerFor returns the signer of an endpoint. It is kept: opening a secret costs
// about as much as signing with it.
func (s *Sender) signerFor(e asyncflow.Endpoint) (signer, error) {
	if known, ok := s.signers.Load(string(e.Secret)); ok {
		return known.(signer), nil
	}
	secret, err := s.keys.Open(e.Secret, e.ID)
	if err != nil {
		return signer{}, err
	}
	made, err := newSigner(secret)
	if err != nil {
		return made, err
	}
	if s.known.Add(1)%maxSigners == 0 { // secrets that were rotated away must not pile up
		s.signers.Clear()
	}
	s.signers.Store(string(e.Secret), made)
	return made, nil
}

// maxSigners bounds how many secrets' signers are kept.
const maxSigners = 10000
