package asyncflow

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Endpoint is a worker's URL registered for a stage of a task type.
type Endpoint struct {
	ID        string // a UUID
	Type      string
	Stage     string
	URL       string
	Secret    []byte // the signing secret, sealed (see callbacks.Keys)
	CreatedAt time.Time
	Limits    Limits
	Health    Health
}

// MaxURLLength bounds an endpoint's URL, in bytes.
const MaxURLLength = 2048

// Validate checks an endpoint: its names, and an absolute URL that the operator's
// policy has nothing against, without user, fragment or template.
func (e Endpoint) Validate(egress Egress) error {
	var out problems
	if err := CheckName(e.Type); err != nil {
		out.add("type", "%v", err)
	}
	if err := CheckName(e.Stage); err != nil {
		out.add("stage", "%v", err)
	}
	if why := checkURL(e.URL, egress); why != "" {
		out.add("url", "%s", why)
	}
	return out.err()
}

// checkURL tells what is wrong with a URL; "" if nothing is.
func checkURL(raw string, egress Egress) string {
	u, err := url.Parse(raw)
	switch {
	case raw == "":
		return "is required"
	case len(raw) > MaxURLLength:
		return fmt.Sprintf("is %d bytes long; the limit is %d", len(raw), MaxURLLength)
	case err != nil || u.Host == "" || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return "must be an absolute https URL such as https://worker.example.com/resize"
	case strings.ContainsFunc(raw, func(c rune) bool { return c <= ' ' || c > '~' || c == '\\' }):
		return "must be ASCII, without spaces and backslashes: percent-encode them, and write international names in Punycode, as xn--…"
	case !validPort(u):
		return fmt.Sprintf("has the port %q; it must be 1 to 65535", u.Port())
	case u.User != nil:
		return "must not hold a user or a password"
	case strings.Contains(raw, "#"):
		return "must not hold a fragment"
	}
	return egress.Refuses(u)
}

func validPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	return parsePort(u.Port()) > 0
}
