package callbacks

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	"golang.org/x/sync/singleflight"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks/internal/transport"
)

const (
	// tokenTime bounds the wait for a token endpoint.
	tokenTime = 10 * time.Second
	// tokenLife is how long a token is used if its answer names no expiry.
	tokenLife = time.Hour
	// tokenMargin is how long before its expiry a token is no longer used. A token that lives for
	// less than ten times as long is no longer used in the last tenth of its life.
	tokenMargin = 30 * time.Second
	// maxAccessToken bounds a token, in bytes. Few servers accept longer headers.
	maxAccessToken = 8 << 10
	// maxTokenAnswer is how many bytes of a token endpoint's answer are read.
	maxTokenAnswer = 64 << 10
	// maxTokensBytes bounds the tokens that a node keeps.
	maxTokensBytes = 16 << 20
)

// grant is what a token is requested with.
type grant struct {
	auth asyncflow.EndpointAuth
	ca   string            // PEM of authorities in addition to the system's; may be empty
	id   [sha256.Size]byte // a hash, so that it reveals nothing
}

func newGrant(auth asyncflow.EndpointAuth, ca string) *grant {
	doc, _ := json.Marshal([]any{auth, ca}) // strings always marshal
	return &grant{auth, ca, sha256.Sum256(doc)}
}

// tokens are the access tokens of OAuth 2.0 client credentials, one for each endpoint. A token is
// requested once, however many deliveries wait for it. It is used until shortly before its expiry,
// until its endpoint refuses it, or until the endpoint's grant changes.
type tokens struct {
	routes *routes
	egress asyncflow.Egress
	flight singleflight.Group
	known  *cache[accessToken]
}

// accessToken is a token, the grant it was requested with, and when its use ends.
type accessToken struct {
	grant  [sha256.Size]byte
	header string // of Authorization
	hide   *mask  // of the token
	until  time.Time
}

func newTokens(r *routes, egress asyncflow.Egress) *tokens {
	return &tokens{routes: r, egress: egress, known: newCache[accessToken](maxTokensBytes)}
}

// login is a token in use.
type login struct {
	header string
	hide   *mask // of the token
	forget func()
}

// refused drops a token that its endpoint refused: the next request gets a new one.
func (l login) refused() {
	if l.forget != nil {
		l.forget()
	}
}

// login returns a token for a tenant's endpoint. It waits for a new one until the limit or ctx
// ends.
func (t *tokens) login(
	ctx context.Context, l limit, tenant, endpoint string, g *grant,
) (login, error) {
	used, ok := t.known.get(tenant, endpoint)
	if !ok || used.grant != g.id || !time.Now().Before(used.until) {
		var err error
		if used, err = t.fetch(ctx, l, tenant, endpoint, g); err != nil {
			return login{}, err
		}
	}
	return login{header: used.header, hide: used.hide, forget: func() {
		// Keep a token that came meanwhile.
		t.known.drop(tenant, endpoint, func(kept accessToken) bool { return kept == used })
	}}, nil
}

// fetch gets a token and keeps it. Concurrent calls for the same grant share one request.
func (t *tokens) fetch(
	ctx context.Context, l limit, tenant, endpoint string, g *grant,
) (accessToken, error) {
	ctx, cancel := context.WithDeadline(ctx, l.deadline)
	defer cancel()
	done := t.flight.DoChan(tenant+" "+endpoint+" "+string(g.id[:]), func() (any, error) {
		got, err := t.ask(tenant, g)
		if err != nil {
			return got, err
		}
		t.known.put(tenant, endpoint, got, len(got.header)+got.hide.bytes)
		return got, nil
	})
	select {
	case r := <-done:
		return r.Val.(accessToken), r.Err
	case <-ctx.Done():
		return accessToken{}, ctx.Err()
	}
}

const bearer = "Bearer "

// ask requests a token from its endpoint. It dials through the same guard as a delivery. The
// endpoint's own authorities count in addition to the system's.
func (t *tokens) ask(tenant string, g *grant) (accessToken, error) {
	at, err := url.Parse(g.auth.TokenURL)
	if err != nil {
		return accessToken{}, errors.New("the endpoint's token_url can't be read")
	}
	if why := t.egress.Refuses(at); why != "" { // the policy may be newer than the endpoint
		return accessToken{}, errors.New("the endpoint's token_url " + why)
	}
	ours := certificates{EndpointTLS: asyncflow.EndpointTLS{CA: g.ca}, andSystem: true}
	route, err := t.routes.to(tenant, ours)
	if err != nil {
		return accessToken{}, err
	}
	l := newLimit(tokenTime)
	ctx, cancel := context.WithDeadline(context.Background(), l.deadline)
	defer cancel()
	answers := &shortAnswers{RoundTripper: route}
	ctx = context.WithValue(ctx, oauth2.HTTPClient,
		&http.Client{Transport: answers, CheckRedirect: transport.NoRedirects})
	config := clientcredentials.Config{
		ClientID:     g.auth.ClientID,
		ClientSecret: g.auth.ClientSecret,
		TokenURL:     g.auth.TokenURL,
		Scopes:       g.auth.Scopes,
	}
	asked := time.Now()
	token, err := config.Token(ctx)
	switch {
	case answers.cut:
		return accessToken{}, fmt.Errorf("the endpoint's token_url gave an answer of more than "+
			"%d bytes, which is the limit", maxTokenAnswer)
	case err != nil:
		// Not wrapped: it isn't an error of the worker's endpoint.
		return accessToken{}, fmt.Errorf("the endpoint's token_url gave no token: %v",
			tokenReason(ctx, l, err))
	case !strings.EqualFold(token.Type(), "Bearer"):
		return accessToken{}, errors.New("the endpoint's token_url gave a token that is no " +
			"bearer token")
	case len(token.AccessToken) > maxAccessToken:
		return accessToken{}, fmt.Errorf("the endpoint's token_url gave an access token of %d "+
			"bytes; the limit is %d", len(token.AccessToken), maxAccessToken)
	}
	return accessToken{
		grant:  g.id,
		header: bearer + token.AccessToken,
		hide:   newMask(token.AccessToken),
		until:  useUntil(asked, token.Expiry),
	}, nil
}

// shortAnswers is a transport for one caller. It reads at most maxTokenAnswer bytes of an answer;
// package oauth2 would read 1 MiB.
type shortAnswers struct {
	http.RoundTripper
	cut bool // an answer was longer
}

// RoundTrip sends a request.
func (s *shortAnswers) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.RoundTripper.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	resp.Body = &shortBody{resp.Body, maxTokenAnswer, s}
	return resp, nil
}

// shortBody is the body of such an answer.
type shortBody struct {
	io.ReadCloser
	left   int
	answer *shortAnswers
}

// Read reads what is left of the limit. It fails if there is more in the answer.
func (b *shortBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	if n > b.left {
		b.answer.cut = true
		return b.left, transport.ErrTooLarge
	}
	b.left -= n
	return n, err
}

// useUntil returns when the use of a token ends that was requested at a time.
func useUntil(asked, expiry time.Time) time.Time {
	if expiry.IsZero() {
		return asked.Add(tokenLife)
	}
	return expiry.Add(-min(tokenMargin, expiry.Sub(asked)/10))
}

// tokenReason says in plain words why there is no token. It doesn't quote the token endpoint, which
// may repeat what it was sent.
func tokenReason(ctx context.Context, l limit, err error) error {
	var refused *oauth2.RetrieveError
	var at *url.Error
	switch {
	case errors.As(err, &refused) && refused.Response != nil && isErrorCode(refused.ErrorCode):
		return fmt.Errorf("it answered %d, %s", refused.Response.StatusCode, refused.ErrorCode)
	case errors.As(err, &refused) && refused.Response != nil:
		return fmt.Errorf("it answered %d", refused.Response.StatusCode)
	case errors.As(err, &at):
		return l.reason(ctx, at.Err)
	case ctx.Err() != nil:
		return l.reason(ctx, ctx.Err())
	}
	return errors.New("its answer can't be read")
}

// isErrorCode reports whether a text is an error code that OAuth 2.0 defines.
func isErrorCode(text string) bool {
	switch text {
	case "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client",
		"unsupported_grant_type", "invalid_scope",
		"access_denied", "server_error", "temporarily_unavailable":
		return true
	}
	return false
}
