package asyncflow

import (
	"net/url"
	"strconv"
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

// Validate checks an endpoint: its names, and an absolute https URL (http too
// when the operator allows it) without user, fragment or template.
func (e Endpoint) Validate(allowHTTP bool) error {
	var out problems
	if err := CheckName(e.Type); err != nil {
		out.add("type", "%v", err)
	}
	if err := CheckName(e.Stage); err != nil {
		out.add("stage", "%v", err)
	}
	checkURL(&out, e.URL, allowHTTP)
	return out.err()
}

func checkURL(out *problems, raw string, allowHTTP bool) {
	u, err := url.Parse(raw)
	switch {
	case raw == "":
		out.add("url", "is required")
	case len(raw) > MaxURLLength:
		out.add("url", "is %d bytes long; the limit is %d", len(raw), MaxURLLength)
	case err != nil || u.Host == "" || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https"):
		out.add("url", "must be an absolute https URL such as https://worker.example.com/resize")
	case strings.ContainsAny(raw, " \t"):
		out.add("url", "must not hold spaces")
	case !validPort(u):
		out.add("url", "has the port %q; it must be 1 to 65535", u.Port())
	case u.Scheme == "http" && !allowHTTP:
		out.add("url", "must be https: plain http is off (the operator's --allow-http)")
	case u.User != nil:
		out.add("url", "must not hold a user or a password")
	case u.Fragment != "":
		out.add("url", "must not hold a fragment")
	}
}

func validPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && port > 0
}
