package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

const (
	defaultTimeout = 30 * time.Second
	defaultRetries = 3
)

// Client calls one server on behalf of one tenant. It is safe for concurrent use. It is one type
// with a method for each call, so that a program needs one value.
type Client struct {
	api     *api.Client
	url     string // without a slash at its end
	timeout time.Duration
}

// settings are changed by options.
type settings struct {
	http      *http.Client
	timeout   time.Duration
	retries   int
	userAgent string
}

// Option changes how a Client works.
type Option func(*settings)

// WithHTTPClient sets the http.Client that calls use, such as one with TLS settings or a transport
// that traces. Its redirect policy is not used: see New.
func WithHTTPClient(h *http.Client) Option { return func(s *settings) { s.http = h } }

// WithTimeout bounds each call: connecting, retries, and reading the whole answer. The default is
// 30 s; 0 or less means that only the context bounds a call. Wait adds the time that it asks the
// server to wait.
func WithTimeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// WithRetries sets how often a call is retried that reads, or submits tasks with keys. The default
// is 3.
func WithRetries(n int) Option { return func(s *settings) { s.retries = max(0, n) } }

// WithUserAgent sets the User-Agent header. The default is "asyncflow-go".
func WithUserAgent(name string) Option { return func(s *settings) { s.userAgent = name } }

// New returns a Client of the server at an absolute http or https URL, such as
// "https://tasks.example.com". The token is sent with each call; it may be empty for health checks.
// A redirect is an error: the token is for one server only. The error is CodeInvalid, and names url
// or token.
func New(serverURL, token string, opts ...Option) (*Client, error) {
	s := settings{
		http:      &http.Client{},
		timeout:   defaultTimeout,
		retries:   defaultRetries,
		userAgent: "asyncflow-go",
	}
	for _, o := range opts {
		o(&s)
	}
	base, err := checkURL(serverURL)
	if err != nil {
		return nil, err
	}
	token = strings.TrimSpace(token)
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, asyncflow.InvalidField("token",
			"has white space or other characters that no token has")
	}
	c := &api.Client{
		Server:         base + "/",
		Client:         newDoer(s),
		RequestEditors: []api.RequestEditorFn{headers(token, s.userAgent)},
	}
	return &Client{api: c, url: base, timeout: s.timeout}, nil
}

// URL returns the server's URL, without a slash at its end.
func (c *Client) URL() string { return c.url }

// checkURL returns the URL of a server without a slash at its end.
func checkURL(raw string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return "", asyncflow.InvalidField("url",
			"must be an absolute URL such as http://127.0.0.1:8080, not %q", raw)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", asyncflow.InvalidField("url", "must have no user, query or fragment")
	}
	return strings.TrimRight(u.String(), "/"), nil
}

func headers(token, userAgent string) api.RequestEditorFn {
	return func(ctx context.Context, r *http.Request) error {
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		r.Header.Set("User-Agent", userAgent)
		r.Header.Set("Accept", "application/json, application/problem+json")
		addCondition(ctx, r)
		return nil
	}
}
