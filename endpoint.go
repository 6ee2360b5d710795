package asyncflow

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Endpoint is a worker's URL registered for a stage of a task type.
type Endpoint struct {
	ID    string // a UUID
	Type  string
	Stage string
	URL   string // or ListenURL
	// its share of the stage's deliveries, relative to the other weights; 0: no new ones
	Weight   int
	Secrets  []SigningSecret // that sign deliveries, the newest first
	Outbound []byte          // an Outbound, sealed (see callbacks.Keys); nil: none

	Challenged        bool      // it gets no deliveries until it echoes a challenge
	VerifiedAt        time.Time // when its URL echoed a challenge; zero: never
	VerificationError string    // why it failed its last challenge

	// AllowDuplicate allows the URL of another endpoint of its stage. It is not stored.
	AllowDuplicate bool

	CreatedAt time.Time
	UpdatedAt time.Time
	Limits    Limits
	Batch     Batch
	Health    Health
}

// Bounds of an endpoint.
const (
	MaxURLLength  = 2048 // bytes
	MaxWeight     = 100
	DefaultWeight = 1
)

// Proven reports whether the endpoint may get deliveries: it echoed a challenge, or never had to.
func (e Endpoint) Proven() bool { return !e.Challenged || !e.VerifiedAt.IsZero() }

// share returns the endpoint's part of new deliveries.
func (e *Endpoint) share() int {
	if !e.Proven() {
		return 0
	}
	return e.Weight
}

// Serves reports whether the endpoint gets new deliveries while it is healthy.
func (e *Endpoint) Serves() bool { return e.share() > 0 }

// Serves reports whether any of a stage's endpoints gets new deliveries.
func Serves(endpoints []Endpoint) bool {
	for i := range endpoints {
		if endpoints[i].Serves() {
			return true
		}
	}
	return false
}

// Choose picks the endpoint of a delivery at random by weight, among endpoints that get any. random
// is a number, 0 ≤ random < 1. It returns nil if none gets deliveries.
func Choose(endpoints []*Endpoint, random float64) *Endpoint {
	var sum int
	for _, e := range endpoints {
		sum += e.share()
	}
	at := int(random * float64(sum))
	for _, e := range endpoints {
		if at -= e.share(); at < 0 {
			return e
		}
	}
	return nil
}

// MoveTo gives the endpoint another URL. Verification and health of the old URL don't carry
// over. challenge says whether the new one must echo a challenge.
func (e *Endpoint) MoveTo(url string, challenge bool) {
	e.URL, e.Challenged = url, challenge
	e.VerifiedAt, e.VerificationError = time.Time{}, ""
	e.Health = Health{}
}

// Judge records the result of a challenge of a URL: failure is the reason why it wasn't echoed,
// "" if it was. A failure doesn't stop an endpoint that already gets deliveries. If
// verification is no longer required, the endpoint gets deliveries even after a failure.
func (e *Endpoint) Judge(url, failure string, at time.Time, required bool) {
	if e.URL != url { // the URL is another one by now
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

// SameOrigin reports whether two URLs agree in scheme, host and port.
func SameOrigin(a, b string) bool {
	u, err := url.Parse(a)
	v, err2 := url.Parse(b)
	return err == nil && err2 == nil && u.Scheme == v.Scheme &&
		strings.EqualFold(u.Hostname(), v.Hostname()) && portOf(u) == portOf(v)
}

// SameURL reports whether two URLs are equivalent: the case of scheme and host, the scheme's
// default port and an empty path make no difference.
func SameURL(a, b string) bool {
	u, err := url.Parse(a)
	v, err2 := url.Parse(b)
	if err != nil || err2 != nil {
		return a == b
	}
	samePath := cmp.Or(u.EscapedPath(), "/") == cmp.Or(v.EscapedPath(), "/")
	return SameOrigin(a, b) && samePath && u.RawQuery == v.RawQuery
}

// Validate checks an endpoint: its names, weight, limits and batch, and that its URL is
// absolute, allowed by the operator's policy, and without user, fragment or template.
func (e Endpoint) Validate(egress Egress) error {
	var out problems
	e.checkNames(&out)
	if why := checkURL(e.URL, egress); why != "" {
		out.add("url", "%s", why)
	}
	e.Limits.checkLimits("", &out)
	e.Batch.check(&out)
	return out.err()
}

func (e Endpoint) checkNames(out *problems) {
	if err := CheckName(e.Type); err != nil {
		out.add("type", "%v", err)
	}
	if err := CheckName(e.Stage); err != nil {
		out.add("stage", "%v", err)
	}
	if e.Weight < 0 || e.Weight > MaxWeight {
		out.add("weight", "is %d; it must be 0 to %d", e.Weight, MaxWeight)
	}
}

// checkURL returns what is wrong with a URL; "" if it is valid.
func checkURL(raw string, egress Egress) string {
	u, err := url.Parse(raw)
	switch {
	case raw == "":
		return "is required"
	case len(raw) > MaxURLLength:
		return fmt.Sprintf("is %d bytes long; the limit is %d", len(raw), MaxURLLength)
	case err != nil || u.Host == "" || u.Hostname() == "" ||
		(u.Scheme != "http" && u.Scheme != "https"):
		return "must be an absolute https URL such as https://worker.example.com/resize"
	case strings.ContainsFunc(raw, func(c rune) bool { return c <= ' ' || c > '~' || c == '\\' }):
		return "must be ASCII, without spaces and backslashes: percent-encode them, and write " +
			"international names in Punycode, as xn--…"
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

// Bounds of a Batch.
const (
	MaxBatchTasks = 1000
	MaxBatchWait  = 5 * time.Second
	// MaxBatchBytes bounds the contexts of one request; a task with a larger one goes alone.
	MaxBatchBytes = 1 << 20
)

// Batch lets an endpoint get several tasks of its stage in one request, and answer for each.
// The zero value stands for no batches: one request per task.
type Batch struct {
	// MaxTasks is the limit of tasks in one request.
	MaxTasks int `json:"max_tasks,omitzero"`
	// MaxWait is how long a task may wait for others to fill the request; zero: only tasks that
	// were leased together share a request.
	MaxWait Duration `json:"max_wait,omitzero"`
}

// IsZero reports whether there are no batches.
func (b Batch) IsZero() bool { return b.MaxTasks == 0 && b.MaxWait.IsZero() }

func (b Batch) check(out *problems) {
	if b.IsZero() {
		return
	}
	if b.MaxTasks < 1 || b.MaxTasks > MaxBatchTasks {
		out.add("batch.max_tasks", "is %d; it must be 1 to %d", b.MaxTasks, MaxBatchTasks)
	}
	checkDuration(out, "batch.max_wait", b.MaxWait, 0, MaxBatchWait)
}
