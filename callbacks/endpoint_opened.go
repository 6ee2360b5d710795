package callbacks

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks/internal/transport"
	"github.com/asyncflow/asyncflow/internal/signing"
)

// opened is an endpoint of a tenant, ready for use: its URL is parsed and checked, its secrets and
// settings are opened. Many requests share one.
type opened struct {
	tenant   string
	id       string
	target   *url.URL
	signers  []openedSecret // in the order of the endpoint's secrets
	settings *settings      // nil: none

	// The endpoint's fields that it was made from.
	url      string
	secrets  []asyncflow.SigningSecret
	outbound []byte
}

// openedSecret is the signer of a secret, or the error of opening it.
type openedSecret struct {
	signing.Signer
	err error
}

// maxOpenedBytes bounds the opened endpoints that a node keeps.
const maxOpenedBytes = 64 << 20

// open returns an endpoint of a tenant, ready for use. It is kept until the endpoint changes,
// because opening costs more than sending.
func (s *Sender) open(tenant string, e *asyncflow.Endpoint) (*opened, error) {
	if known, ok := s.opened.get(tenant, e.ID); ok && known.isOf(e) {
		return known, nil
	}
	made, err := s.openAnew(tenant, e)
	if err != nil {
		return nil, err
	}
	s.opened.put(tenant, e.ID, made, made.bytes())
	return made, nil
}

// openAnew is open without keeping the result, for an endpoint that may never get a delivery.
func (s *Sender) openAnew(tenant string, e *asyncflow.Endpoint) (*opened, error) {
	o := &opened{tenant: tenant, id: e.ID, url: e.URL, secrets: e.Secrets, outbound: e.Outbound}
	var err error
	if o.settings, err = s.openSettings(e); err != nil {
		return nil, err
	}
	if e.Listens() { // it is only opened to sign
		o.target = &url.URL{}
	} else if o.target, err = s.target(e.URL); err != nil {
		return nil, err
	}
	for _, secret := range e.Secrets {
		o.signers = append(o.signers, s.openSecret(e.ID, secret))
	}
	return o, nil
}

// isOf reports whether o was made from the present version of an endpoint.
func (o *opened) isOf(e *asyncflow.Endpoint) bool {
	same := func(a, b asyncflow.SigningSecret) bool { return bytes.Equal(a.Sealed, b.Sealed) }
	return o.url == e.URL && bytes.Equal(o.outbound, e.Outbound) &&
		slices.EqualFunc(o.secrets, e.Secrets, same)
}

// bytes is roughly what o takes in memory. Settings are kept sealed and opened. A signer keeps the
// states of its MAC.
func (o *opened) bytes() int {
	n := 1<<10 + 3*len(o.url) + 3*len(o.outbound)
	if o.settings != nil {
		n += o.settings.hide.bytes
	}
	for _, secret := range o.secrets {
		n += 2<<10 + len(secret.Sealed)
	}
	return n
}

// target parses a URL, and checks it against the policy.
func (s *Sender) target(text string) (*url.URL, error) {
	req, err := http.NewRequest(http.MethodPost, text, nil)
	if err != nil {
		return nil, err
	}
	if err = s.permits(req.URL); err != nil {
		return nil, err
	}
	return req.URL, nil
}

// permits checks a URL against the policy, which may be newer than the endpoint.
func (s *Sender) permits(to *url.URL) error {
	if why := s.cfg.Egress.Refuses(to); why != "" {
		return policyError{"the endpoint's URL " + why}
	}
	return nil
}

func (s *Sender) openSecret(endpoint string, secret asyncflow.SigningSecret) (o openedSecret) {
	text, err := s.keys.Open(secret.Sealed, endpoint)
	if err != nil {
		return openedSecret{err: err}
	}
	o.Signer, o.err = signing.NewSigner(text)
	return o
}

// settings are an endpoint's Outbound, opened and ready for use.
type settings struct {
	headers transport.Headers // custom headers, and a fixed Authorization
	oauth2  *grant            // nil: none
	tls     certificates
	hide    *mask // of its secrets
}

// openSettings opens an endpoint's settings. It returns nil if there are none.
func (s *Sender) openSettings(e *asyncflow.Endpoint) (*settings, error) {
	if len(e.Outbound) == 0 {
		return nil, nil
	}
	o, err := s.keys.OpenOutbound(*e)
	if err != nil {
		return nil, err
	}
	return newSettings(o), nil
}

func newSettings(o asyncflow.Outbound) *settings {
	set := &settings{tls: certificates{EndpointTLS: o.TLS}, hide: newMask(hidden(o)...)}
	for name, value := range o.Headers {
		set.headers.Set(name, value)
	}
	switch a := o.Auth; a.Kind {
	case asyncflow.AuthBearer:
		set.headers.Set("Authorization", bearer+a.Token)
	case asyncflow.AuthBasic:
		encoded, _ := basic(a)
		set.headers.Set("Authorization", "Basic "+encoded)
	case asyncflow.AuthOAuth2:
		set.oauth2 = newGrant(a, o.TLS.CA)
	}
	return set
}

// scrub masks the endpoint's secrets in a text, such as the error of a worker that shows what it
// was sent. It also masks the token of the login that the request used.
func (s *settings) scrub(text string, used login) string {
	if s == nil || text == "" {
		return text
	}
	return s.hide.apply(used.hide.apply(text))
}

// apply sets the headers that an endpoint's settings ask for, and returns the login among them.
func (t *tokens) apply(
	ctx context.Context, l limit, o *opened, h *transport.Headers,
) (login, error) {
	for _, one := range o.settings.headers {
		h.Set(one.Name, one.Value)
	}
	if o.settings.oauth2 == nil {
		return login{}, nil
	}
	used, err := t.login(ctx, l, o.tenant, o.id, o.settings.oauth2)
	if err != nil {
		return used, err
	}
	h.Set("Authorization", used.header)
	return used, nil
}
