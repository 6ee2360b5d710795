package callbacks

import (
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks/internal/transport"
)

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
