package callbacks

import (
	"cmp"
	"context"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks/internal/transport"
)

// settings are an endpoint's Outbound, opened and ready for use.
type settings struct {
	headers transport.Headers // custom headers, and a fixed Authorization
	oauth2  *grant            // nil: none
	tls     certificates
	hide    []string // secrets to be masked, the longest first
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
	set := &settings{tls: certificates{EndpointTLS: o.TLS}}
	for name, value := range o.Headers {
		set.headers.Set(name, value)
	}
	secrets := o.Secrets()
	switch a := o.Auth; a.Kind {
	case asyncflow.AuthBearer:
		set.headers.Set("Authorization", bearer+a.Token)
	case asyncflow.AuthBasic:
		both := base64.StdEncoding.EncodeToString([]byte(a.Username + ":" + a.Password))
		set.headers.Set("Authorization", "Basic "+both)
		secrets = append(secrets, both)
	case asyncflow.AuthOAuth2:
		set.oauth2 = newGrant(a, o.TLS.CA)
	}
	set.hide = hidden(secrets)
	return set
}

// leastHidden is the least length of a secret that is masked. Shorter ones would match too much.
const leastHidden = 6

// hidden returns the secrets to be masked, the longest first: a secret may be part of another one.
func hidden(secrets []string) []string {
	secrets = slices.DeleteFunc(secrets, func(s string) bool { return len(s) < leastHidden })
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return secrets
}

// scrub masks the endpoint's secrets in a text, such as the error of a worker that shows what it
// was sent. It also masks the token of the login that the request used.
func (s *settings) scrub(text string, used login) string {
	if s == nil || text == "" {
		return text
	}
	if token := strings.TrimPrefix(used.header, bearer); token != "" {
		text = strings.ReplaceAll(text, token, asyncflow.Mask)
	}
	for _, secret := range s.hide {
		text = strings.ReplaceAll(text, secret, asyncflow.Mask)
	}
	return text
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
	if err == nil {
		h.Set("Authorization", used.header)
	}
	return used, err
}
