package asyncflow

import (
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Endpoint is a worker's URL registered for a stage of a task type.
type Endpoint struct {
	ID       string // a UUID
	Type     string
	Stage    string
	URL      string
	Weight   int             // its share of the stage's deliveries, beside the weights of the others; 0: it gets no new ones
	Secrets  []SigningSecret // what deliveries are signed with, the newest first
	Outbound []byte          // an Outbound, sealed (see callbacks.Keys); nil: none

	Challenged        bool      // it gets no deliveries until it has proven whose it is
	VerifiedAt        time.Time // when its URL echoed a challenge; zero: never
	VerificationError string    // why it didn't when it was last challenged

	CreatedAt time.Time
	UpdatedAt time.Time
}

// Bounds of an endpoint.
const (
	MaxURLLength  = 2048 // bytes
	MaxWeight     = 100
	DefaultWeight = 1
)

// Proven tells whether the endpoint may be delivered to: it has echoed a challenge, or
// never had to.
func (e Endpoint) Proven() bool { return !e.Challenged || !e.VerifiedAt.IsZero() }

// share returns the endpoint's part of new deliveries.
func (e *Endpoint) share() int {
	if !e.Proven() {
		return 0
	}
	return e.Weight
}

// Serves tells whether any of a stage's endpoints gets new deliveries.
func Serves(endpoints []Endpoint) bool {
	_, ok := Choose(endpoints, 0)
	return ok
}

// Choose picks the endpoint of a delivery by the weights of those that get any: random
// is a number, 0 ≤ random < 1. It is not ok when none does.
func Choose(endpoints []Endpoint, random float64) (Endpoint, bool) {
	var sum int
	for i := range endpoints {
		sum += endpoints[i].share()
	}
	at := int(random * float64(sum))
	for i := range endpoints {
		if at -= endpoints[i].share(); at < 0 {
			return endpoints[i], true
		}
	}
	return Endpoint{}, false
}

// MoveTo gives the endpoint another URL. What was proven of the old one says
// nothing of it; challenge tells whether it has to be proven.
func (e *Endpoint) MoveTo(url string, challenge bool) {
	e.URL, e.Challenged = url, challenge
	e.VerifiedAt, e.VerificationError = time.Time{}, ""
}

// Judge takes in how a challenge of a URL went at a time: failure says why it wasn't
// echoed, "" that it was. A failure takes nothing away from an endpoint that gets
// deliveries; where nothing has to be proven any more, it gets them from now on.
func (e *Endpoint) Judge(url, failure string, at time.Time, required bool) {
	if e.URL != url { // it has moved meanwhile
		return
	}
	e.VerificationError = failure
	switch {
	case failure == "":
		e.VerifiedAt = at
	case !required:
		e.Challenged = false
	}
}

// SameOrigin tells whether two URLs have the same scheme, host and port.
func SameOrigin(a, b string) bool {
	u, err := url.Parse(a)
	v, err2 := url.Parse(b)
	return err == nil && err2 == nil && u.Scheme == v.Scheme && strings.EqualFold(u.Hostname(), v.Hostname()) && port(u) == port(v)
}

func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// Validate checks an endpoint: its names, its weight, and an absolute https URL (http
// too when the operator allows it) without user, fragment or template.
func (e Endpoint) Validate(allowHTTP bool) error {
	var out problems
	if err := CheckName(e.Type); err != nil {
		out.add("type", "%v", err)
	}
	if err := CheckName(e.Stage); err != nil {
		out.add("stage", "%v", err)
	}
	checkURL(&out, "url", e.URL, allowHTTP)
	if e.Weight < 0 || e.Weight > MaxWeight {
		out.add("weight", "is %d; it must be 0 to %d", e.Weight, MaxWeight)
	}
	return out.err()
}

func checkURL(out *problems, field, raw string, allowHTTP bool) {
	u, err := url.Parse(raw)
	switch {
	case raw == "":
		out.add(field, "is required")
	case len(raw) > MaxURLLength:
		out.add(field, "is %d bytes long; the limit is %d", len(raw), MaxURLLength)
	case err != nil || u.Host == "" || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https"):
		out.add(field, "must be an absolute https URL such as https://worker.example.com/resize")
	case strings.ContainsAny(raw, " \t"):
		out.add(field, "must not hold spaces")
	case !validPort(u):
		out.add(field, "has the port %q; it must be 1 to 65535", u.Port())
	case u.Scheme == "http" && !allowHTTP:
		out.add(field, "must be https: plain http is off (the operator's --allow-http)")
	case u.User != nil:
		out.add(field, "must not hold a user or a password")
	case u.Fragment != "":
		out.add(field, "must not hold a fragment")
	}
}

func validPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && port > 0
}
