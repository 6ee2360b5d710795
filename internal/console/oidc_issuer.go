package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"
)

const (
	// maxIssuerAnswer bounds the body of an issuer's answer, in bytes.
	maxIssuerAnswer = 1 << 20
	// maxIssuerHeader bounds the header of an issuer's answer, in bytes.
	maxIssuerHeader = 64 << 10
	// maxIssuerURL bounds a URL in an issuer's configuration, in bytes: it goes into a header.
	maxIssuerURL = 2 << 10
	// discoveryAge is how long the configuration of an issuer is used.
	discoveryAge = time.Hour
	// discoveryPause is how long logins fail at once after the configuration could not be fetched.
	discoveryPause = 5 * time.Second
)

// issuer is a foreign issuer. Its configuration is fetched when a login needs it, so that a node
// starts without it; logins that need it at the same time share one request.
//
// Anybody can begin a login and come back with a made-up code. So a node asks the issuer for its
// configuration at most every discoveryPause, and exchanges bound the codes that it redeems.
type issuer struct {
	cfg       OIDC
	client    *http.Client
	now       func() time.Time
	exchanges *exchanges

	flight singleflight.Group
	mu     sync.Mutex
	known  *oidc.Provider // nil: not fetched yet
	failed error          // why it could not be fetched; nil: it could
	until  time.Time      // when it is fetched again
}

func newIssuer(cfg OIDC, now func() time.Time) *issuer {
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: cfg.Timeout}).DialContext,
		TLSHandshakeTimeout:    cfg.Timeout,
		MaxResponseHeaderBytes: maxIssuerHeader,
		DisableCompression:     true, // a small compressed answer could become huge
		DisableKeepAlives:      true, // logins are rare
	}
	client := &http.Client{
		Transport: limited{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	return &issuer{cfg: cfg, client: client, now: now, exchanges: newExchanges(now, cfg.Timeout)}
}

// limited is a transport with answers that are an error once they exceed maxIssuerAnswer.
type limited struct{ http.RoundTripper }

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(r)
	if err != nil {
		return resp, err
	}
	resp.Body = &limitedBody{resp.Body, maxIssuerAnswer}
	return resp, nil
}

type limitedBody struct {
	io.ReadCloser
	left int
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, fmt.Errorf("its answer has more than %d bytes", maxIssuerAnswer)
	}
	return n, err
}

// provider returns the issuer's configuration.
func (i *issuer) provider(ctx context.Context) (*oidc.Provider, error) {
	if p, fresh, err := i.cachedProvider(); fresh {
		return p, err
	}
	got := i.flight.DoChan("", func() (any, error) { return i.discover() })
	select {
	case r := <-got:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*oidc.Provider), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// cachedProvider returns what the last fetch of the configuration came to, as long as that counts.
func (i *issuer) cachedProvider() (p *oidc.Provider, fresh bool, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.known, i.now().Before(i.until), i.failed
}

// discover fetches the configuration, and remembers it or why that failed. It doesn't depend on the
// login that asked first, since others may wait for it too.
func (i *issuer) discover() (*oidc.Provider, error) {
	if p, fresh, err := i.cachedProvider(); fresh { // another login just fetched it
		return p, err
	}
	p, err := i.fetch()
	age := discoveryAge
	if err != nil {
		age = discoveryPause
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.known, i.failed, i.until = p, err, i.now().Add(age)
	return p, err
}

func (i *issuer) fetch() (*oidc.Provider, error) {
	ctx, cancel := i.limit(context.Background())
	defer cancel()
	p, err := oidc.NewProvider(ctx, i.cfg.Issuer)
	if err != nil {
		return nil, err
	}
	var keys struct {
		URL string `json:"jwks_uri"`
	}
	if err := p.Claims(&keys); err != nil {
		return nil, err
	}
	own, err := url.Parse(i.cfg.Issuer)
	if err != nil {
		return nil, err
	}
	for _, raw := range []string{p.Endpoint().AuthURL, p.Endpoint().TokenURL, keys.URL} {
		if u, err := url.Parse(raw); err != nil || u.Host == "" || !secure(u) ||
			own.Scheme == "https" && u.Scheme != "https" || len(raw) > maxIssuerURL {
			return nil, errors.New("its configuration lacks an endpoint, or has one that isn't " +
				"https")
		}
	}
	return p, nil
}

// limit returns a context for an exchange with the issuer.
func (i *issuer) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(oidc.ClientContext(ctx, i.client), i.cfg.Timeout)
}

// oauth returns the client as package oauth2 takes it.
func (i *issuer) oauth(p *oidc.Provider, redirect string) *oauth2.Config {
	endpoint := p.Endpoint()
	if i.cfg.ClientSecret == "" { // trying Basic first would use up the code
		endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return &oauth2.Config{ClientID: i.cfg.ClientID, ClientSecret: i.cfg.ClientSecret,
		Endpoint: endpoint, RedirectURL: redirect, Scopes: i.cfg.Scopes}
}

// authorizeURL returns where a browser logs in.
func (i *issuer) authorizeURL(
	ctx context.Context, l pendingLogin, redirect string,
) (string, error) {
	p, err := i.provider(ctx)
	if err != nil {
		return "", err
	}
	return i.oauth(p, redirect).AuthCodeURL(l.State, oidc.Nonce(l.Nonce),
		oauth2.S256ChallengeOption(l.Verifier)), nil
}

// These refuse an ID token that another client may have asked for.
var (
	errParty   = errors.New("its ID token was issued to another client (claim azp)")
	errNoParty = errors.New("its ID token is for several clients, and has no claim azp")
)

// errNonce refuses an ID token that belongs to another login.
var errNonce = errors.New("its ID token belongs to another login (claim nonce)")

// checkParty refuses an ID token that another client asked for, as its claim azp says. A token for
// several audiences must carry that claim (OpenID Connect Core, section 3.1.3.7).
func (i *issuer) checkParty(token *oidc.IDToken) error {
	var claims struct {
		Party *string `json:"azp"`
	}
	if err := token.Claims(&claims); err != nil {
		return fmt.Errorf("its ID token: %w", err)
	}
	switch {
	case claims.Party != nil && *claims.Party != i.cfg.ClientID:
		return errParty
	case claims.Party == nil && len(token.Audience) > 1:
		return errNoParty
	}
	return nil
}

// exchangeCode exchanges the code of a login for a token. It checks the ID token in any case, since
// only that says which login it belongs to.
func (i *issuer) exchangeCode(
	ctx context.Context, l pendingLogin, code, redirect string,
) (string, error) {
	p, err := i.provider(ctx)
	if err != nil {
		return "", err
	}
	ctx, cancel := i.limit(ctx)
	defer cancel()
	got, err := i.oauth(p, redirect).Exchange(ctx, code, oauth2.VerifierOption(l.Verifier))
	if err != nil {
		return "", err
	}
	id, _ := got.Extra("id_token").(string)
	if id == "" {
		return "", errors.New("it answered without an ID token")
	}
	verifier := p.VerifierContext(ctx, &oidc.Config{ClientID: i.cfg.ClientID, Now: i.now})
	verified, err := verifier.Verify(ctx, id)
	if err != nil {
		return "", fmt.Errorf("its ID token: %w", err)
	}
	if err := i.checkParty(verified); err != nil {
		return "", err
	}
	if !equal(verified.Nonce, l.Nonce) {
		return "", errNonce
	}
	if i.cfg.Token == TokenAccess {
		return got.AccessToken, nil
	}
	return id, nil
}
