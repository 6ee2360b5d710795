package asyncflow

import (
	"maps"
	"net/textproto"
	"slices"
	"strings"
)

// Outbound holds the headers, auth and certificates of deliveries to an endpoint. It is stored
// sealed; Masked returns what may be shown.
type Outbound struct {
	Headers map[string]string `json:"headers,omitempty"` // by canonical name
	Auth    EndpointAuth      `json:"auth,omitzero"`
	TLS     EndpointTLS       `json:"tls,omitzero"`
}

// Mask replaces a secret where its presence may be shown.
const Mask = "********"

// Bounds of an Outbound.
const (
	MaxHeaders     = 20
	MaxHeaderBytes = 8 << 10 // names and values together
	maxHeaderName  = 128
)

// Zero reports whether it is empty.
func (o Outbound) Zero() bool {
	return len(o.Headers) == 0 && o.Auth.Kind == "" && o.TLS == EndpointTLS{}
}

// Masked returns the settings with a mask in place of each secret.
func (o Outbound) Masked() Outbound {
	o.Headers = maps.Clone(o.Headers)
	for name := range o.Headers {
		o.Headers[name] = Mask
	}
	for _, secret := range []*string{&o.Auth.Token, &o.Auth.Password, &o.Auth.ClientSecret,
		&o.TLS.Key} {
		if *secret != "" {
			*secret = Mask
		}
	}
	return o
}

// Secrets returns the texts that must not be shown.
func (o Outbound) Secrets() []string {
	all := slices.Collect(maps.Values(o.Headers))
	all = append(all, o.Auth.Token, o.Auth.Password, o.Auth.ClientSecret, o.TLS.Key)
	return slices.DeleteFunc(all, func(s string) bool { return s == "" })
}

// Normal returns the settings as they are stored: headers by their canonical names, and no auth
// for the kind none.
func (o Outbound) Normal() Outbound {
	headers := make(map[string]string, len(o.Headers))
	for name, value := range o.Headers {
		headers[textproto.CanonicalMIMEHeaderKey(name)] = value
	}
	o.Headers = headers
	if o.Auth.Kind == AuthNone {
		o.Auth = EndpointAuth{}
	}
	return o
}

// Validate checks the settings of an endpoint with a URL. No error shows a secret.
func (o Outbound) Validate(url string, egress Egress) error {
	var out problems
	o.checkHeaders(&out)
	o.Auth.check(&out, egress)
	if url == ListenURL {
		o.checkNothing(&out)
	} else {
		o.TLS.check(&out, url)
	}
	return out.err()
}

func (o Outbound) checkHeaders(out *problems) {
	if len(o.Headers) > MaxHeaders {
		out.add("headers", "has %d headers; the limit is %d", len(o.Headers), MaxHeaders)
	}
	bytes := 0
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(o.Headers)) {
		value := o.Headers[name]
		field := "headers." + name
		bytes += len(name) + len(value)
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !isToken(name):
			out.add("headers",
				"has a name that is none: a header's name has letters, digits and "+
					"!#$%%&'*+-.^_`|~ only, 1 to %d of them", maxHeaderName)
		case seen[canonical]:
			out.add(field, "is given twice: case doesn't count")
		case reservedHeader(canonical):
			out.add(field, "is set by asyncflow or by HTTP itself, and can't be yours")
		case canonical == "Authorization" && o.Auth.Kind != "" && o.Auth.Kind != AuthNone:
			out.add(field, "can't be set together with auth")
		case !isHeaderValue(value):
			out.add(field,
				"must be printable ASCII, without a space at its begin or end, and not empty")
		case value == Mask:
			out.add(field, "is the mask, not the value: leave headers out to keep them as they are")
		}
		seen[canonical] = true
	}
	if bytes > MaxHeaderBytes {
		out.add("headers", "has %d bytes of names and values; the limit is %d", bytes,
			MaxHeaderBytes)
	}
}

// reservedHeader reports whether users must not set a header: hop-by-hop headers, headers that
// frame or sign the body, and headers that would change the form of the answer.
func reservedHeader(canonical string) bool {
	switch canonical {
	case "Host", "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Expect", "Accept-Encoding", "User-Agent", "Http2-Settings":
		return true
	}
	for _, prefix := range []string{"Content-", "Webhook-", "Proxy-"} {
		if strings.HasPrefix(canonical, prefix) {
			return true
		}
	}
	return false
}

func isToken(name string) bool {
	forbidden := func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	}
	return name != "" && len(name) <= maxHeaderName && !strings.ContainsFunc(name, forbidden)
}

func isHeaderValue(value string) bool {
	return value != "" && strings.Trim(value, " \t") == value &&
		!strings.ContainsFunc(value, func(r rune) bool { return (r < ' ' && r != '\t') || r > '~' })
}
