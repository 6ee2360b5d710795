package callbacks

import (
	"context"
	"encoding/base64"
	"strings"

	"github.com/asyncflow/asyncflow"
)

// settings are an endpoint's Outbound, ready for use.
type settings struct {
	headers headers // the custom ones, and Authorization if it is always the same
	oauth2  *grant  // nil: none
	tls     certificates
	hide    *strings.Replacer // of secrets, from what is shown
}

// settingsOf returns an endpoint's settings; nil if it has none. They are kept: opening
// and reading them costs more than using them.
func (s *Sender) settingsOf(e *asyncflow.Endpoint) (*settings, error) {
	if len(e.Outbound) == 0 {
		return nil, nil
	}
	if known, ok := keptOf(&s.settings, e.Outbound); ok {
		return known, nil
	}
	o, err := s.keys.OpenOutbound(*e)
	if err != nil {
		return nil, err
	}
	made := newSettings(o)
	s.settings.put(string(e.Outbound), made)
	return made, nil
}

func newSettings(o asyncflow.Outbound) *settings {
	set := &settings{tls: certificates{EndpointTLS: o.TLS}}
	for name, value := range o.Headers {
		set.headers.set(name, value)
	}
	secrets := o.Secrets()
	switch a := o.Auth; a.Kind {
	case asyncflow.AuthBearer:
		set.headers.set("Authorization", bearer+a.Token)
	case asyncflow.AuthBasic:
		both := base64.StdEncoding.EncodeToString([]byte(a.Username + ":" + a.Password))
		set.headers.set("Authorization", "Basic "+both)
		secrets = append(secrets, both)
	case asyncflow.AuthOAuth2:
		set.oauth2 = &grant{auth: a, ca: o.TLS.CA}
	}
	set.hide = hider(secrets)
	return set
}

// leastHidden is the length from which a secret is looked for: shorter ones would
// match anything.
const leastHidden = 6

// hider returns what puts a mask in the place of secrets.
func hider(secrets []string) *strings.Replacer {
	var pairs []string
	for _, secret := range secrets {
		if len(secret) >= leastHidden {
			pairs = append(pairs, secret, asyncflow.Mask)
		}
	}
	return strings.NewReplacer(pairs...)
}

// scrub takes the endpoint's secrets out of a text, such as the error of a worker that
// shows what it was sent.
func (s *settings) scrub(text string, all *tokens) string {
	if s == nil || text == "" {
		return text
	}
	if s.oauth2 != nil {
		text = all.hide(*s.oauth2, text)
	}
	return s.hide.Replace(text)
}

// apply sets what requests to the endpoint have, and says how it has logged in.
func (s *settings) apply(ctx context.Context, h *headers, all *tokens) (login, error) {
	for _, one := range s.headers {
		h.set(one.Name, one.Value)
	}
	if s.oauth2 == nil {
		return login{}, nil
	}
	l, err := all.login(ctx, *s.oauth2)
	if err == nil {
		h.set("Authorization", l.header)
	}
	return l, err
}
