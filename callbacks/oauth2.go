package callbacks

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	"golang.org/x/sync/singleflight"

	"github.com/asyncflow/asyncflow"
)

const (
	// tokenTime bounds the wait for a token endpoint.
	tokenTime = 10 * time.Second
	// tokenLife is how long a token is used that doesn't say how long it is good.
	tokenLife = time.Hour
	// tokenMargin is how long before its end a token is no longer used; of one that
	// lives for less than ten times that, it is a tenth of its life.
	tokenMargin = 30 * time.Second
	// maxTokens bounds how many tokens are kept.
	maxTokens = 10000
)

// grant is what a token is asked for with.
type grant struct {
	auth asyncflow.EndpointAuth
	ca   string // PEM of authorities that count beside the system's; may be empty
}

// id tells grants apart without showing what they hold.
func (g grant) id() string {
	doc, _ := json.Marshal([]any{g.auth, g.ca}) // strings only
	sum := sha256.Sum256(doc)
	return string(sum[:])
}

// tokens are the access tokens of OAuth 2.0 client credentials. Each is asked for once,
// however many deliveries wait for it, and used until shortly before its end, or until
// an endpoint refuses it.
type tokens struct {
	routes *routes
	flight singleflight.Group
	mu     sync.Mutex
	known  *lru.Cache[string, accessToken]
}

// accessToken is a token and until when it is used.
type accessToken struct {
	header string // of Authorization
	until  time.Time
}

func newTokens(r *routes) *tokens {
	return &tokens{routes: r, known: newLRU[accessToken](maxTokens, nil)}
}

// login is a token in use.
type login struct {
	header string
	forget func()
}

// refused says that an endpoint didn't take the token: the next request has a new one.
func (l login) refused() {
	if l.forget != nil {
		l.forget()
	}
}

// login returns a token for a grant, and waits for it as long as ctx allows.
func (t *tokens) login(ctx context.Context, g grant) (login, error) {
	id := g.id()
	if known, ok := t.known.Get(id); ok && time.Now().Before(known.until) {
		return t.loginWith(id, known), nil
	}
	done := t.flight.DoChan(id, func() (any, error) {
		got, err := t.ask(g)
		if err == nil {
			t.known.Add(id, got)
		}
		return got, err
	})
	select {
	case r := <-done:
		if r.Err != nil {
			return login{}, r.Err
		}
		return t.loginWith(id, r.Val.(accessToken)), nil
	case <-ctx.Done():
		return login{}, ctx.Err()
	}
}

func (t *tokens) loginWith(id string, used accessToken) login {
	return login{header: used.header, forget: func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if known, ok := t.known.Peek(id); ok && known == used { // not one that came meanwhile
			t.known.Add(id, accessToken{header: used.header}) // over, but still to be hidden
		}
	}}
}

// hide takes the token of a grant out of a text.
func (t *tokens) hide(g grant, text string) string {
	if known, ok := t.known.Peek(g.id()); ok {
		return strings.ReplaceAll(text, strings.TrimPrefix(known.header, bearer), asyncflow.Mask)
	}
	return text
}

const bearer = "Bearer "

// ask gets a token from its endpoint, over the same guarded way as a delivery. The
// endpoint's own authorities count beside the system's.
func (t *tokens) ask(g grant) (accessToken, error) {
	at, err := url.Parse(g.auth.TokenURL)
	if err != nil {
		return accessToken{}, errors.New("the endpoint's token_url can't be read")
	}
	if why := t.routes.cfg.Egress.Refuses(at); why != "" { // the policy may be newer than the endpoint
		return accessToken{}, errors.New("the endpoint's token_url " + why)
	}
	route, err := t.routes.to(certificates{EndpointTLS: asyncflow.EndpointTLS{CA: g.ca}, andSystem: true})
	if err != nil {
		return accessToken{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), tokenTime)
	defer cancel()
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: route.HTTPClient.Transport, CheckRedirect: noRedirects})
	config := clientcredentials.Config{ClientID: g.auth.ClientID, ClientSecret: g.auth.ClientSecret, TokenURL: g.auth.TokenURL, Scopes: g.auth.Scopes}
	asked := time.Now()
	token, err := config.Token(ctx)
	if err != nil {
		return accessToken{}, fmt.Errorf("the endpoint's token_url gave no token: %v", tokenReason(ctx, err)) // not wrapped: it is not the endpoint itself
	}
	if !strings.EqualFold(token.Type(), "Bearer") {
		return accessToken{}, errors.New("the endpoint's token_url gave a token that is no bearer token")
	}
	return accessToken{header: bearer + token.AccessToken, until: useUntil(asked, token.Expiry)}, nil
}

// useUntil returns until when a token is used that was asked for at a time.
func useUntil(asked, expiry time.Time) time.Time {
	if expiry.IsZero() {
		return asked.Add(tokenLife)
	}
	return expiry.Add(-min(tokenMargin, expiry.Sub(asked)/10))
}

// tokenReason says in plain words why there is no token. What the token endpoint has
// written is not in it: it may repeat what it was sent.
func tokenReason(ctx context.Context, err error) error {
	var refused *oauth2.RetrieveError
	var at *url.Error
	switch {
	case errors.As(err, &refused) && refused.Response != nil && isErrorCode(refused.ErrorCode):
		return fmt.Errorf("it answered %d, %s", refused.Response.StatusCode, refused.ErrorCode)
	case errors.As(err, &refused) && refused.Response != nil:
		return fmt.Errorf("it answered %d", refused.Response.StatusCode)
	case errors.As(err, &at):
		return reason(ctx, at.Err, tokenTime)
	case ctx.Err() != nil:
		return reason(ctx, ctx.Err(), tokenTime)
	}
	return errors.New("its answer can't be read")
}

// isErrorCode tells whether a text is an error code of OAuth 2.0, of those there are.
func isErrorCode(text string) bool {
	switch text {
	case "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope",
		"access_denied", "server_error", "temporarily_unavailable":
		return true
	}
	return false
}
