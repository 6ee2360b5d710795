package console

import (
	"cmp"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
)

// Config is what a console needs.
type Config struct {
	// Verifier verifies the tokens of the API.
	Verifier *auth.Verifier
	// Secret seals sessions; all nodes share it. Sessions sealed with OldSecrets are still read.
	Secret     []byte
	OldSecrets [][]byte
	// Version is the program's, for the page.
	Version string
	// Instance distinguishes this installation from others; it may be empty.
	Instance Instance
	// TraceURL is the address of a trace in a tracing system, with TraceID in place of the trace's
	// id: the page of a task links there. "": it doesn't.
	TraceURL string

	// Open is a token for requests without a session, as long as they come from a browser on this
	// machine. Empty, as it must be except on a developer's machine: there is none.
	Open string

	// OIDC is the login at an issuer.
	OIDC OIDC
	// PublicURL is where browsers reach the node, such as https://tasks.example.com: the issuer
	// sends them back there. Only OIDC needs it.
	PublicURL string

	// Now is the clock; nil: time.Now.
	Now func() time.Time
	Log *slog.Logger // nil: none
}

// Instance is how the page shows which installation it belongs to.
type Instance struct {
	Name  string // such as "staging"; at most maxInstanceName characters
	Color string // #rrggbb; "": the page's own
}

// maxInstanceName bounds the name of an instance, in characters.
const maxInstanceName = 40

var colorForm = regexp.MustCompile(`^#[0-9a-fA-F]{6}$`)

// Check refuses a name or a color that the page can't show. The error is an InvalidField of
// instance-name or instance-color.
func (i Instance) Check() error {
	if utf8.RuneCountInString(i.Name) > maxInstanceName || !utf8.ValidString(i.Name) ||
		strings.ContainsFunc(i.Name, unicode.IsControl) {
		return asyncflow.InvalidField("instance-name",
			"must be at most %d characters, without control characters", maxInstanceName)
	}
	if i.Color != "" && !colorForm.MatchString(i.Color) {
		return asyncflow.InvalidField("instance-color", "is %.20q; it must be of the form #rrggbb",
			i.Color)
	}
	return nil
}

// TraceID stands for the id of a trace in Config.TraceURL.
const TraceID = "{trace_id}"

// maxTraceURL bounds the template in bytes.
const maxTraceURL = 2000

// CheckTraceURL refuses a template that makes no link of a trace's id. The error is an InvalidField
// of trace-url.
func CheckTraceURL(template string) error {
	if template == "" {
		return nil
	}
	bad := func(format string, args ...any) error {
		const such = ", such as https://tempo.example.com/trace/" + TraceID
		return asyncflow.InvalidField("trace-url", format+such, args...)
	}
	if len(template) > maxTraceURL {
		return bad("has %d bytes; the limit is %d", len(template), maxTraceURL)
	}
	if !strings.Contains(template, TraceID) {
		return bad("has no %s; it must be a URL with that", TraceID)
	}
	id := strings.Repeat("0123456789abcdef", 2)
	u, err := url.Parse(strings.ReplaceAll(template, TraceID, id))
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" ||
		strings.ContainsFunc(template, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return bad("must be an absolute URL with https or http")
	case u.User != nil:
		return bad("must have no user: all who see the console see the link")
	case strings.Contains(u.Host, id):
		return bad("must have %s behind the host", TraceID)
	}
	return nil
}

// Console serves the pages and the sessions of a node.
type Console struct {
	cfg   Config
	seals seals
	files map[string]file

	issuer *issuer // nil: there is no login by OIDC
	now    func() time.Time
}

// New returns a console. An error says which setting is wrong.
func New(cfg Config) (*Console, error) {
	err := errors.Join(cfg.Instance.Check(), CheckTraceURL(cfg.TraceURL), cfg.OIDC.Check())
	if err != nil {
		return nil, err
	}
	seals, err := newSeals(cfg.Secret, cfg.OldSecrets)
	if err != nil {
		return nil, err
	}
	files, err := bundled()
	if err != nil {
		return nil, err
	}
	c := &Console{cfg: cfg, seals: seals, files: files, now: cfg.Now}
	if c.now == nil {
		c.now = time.Now
	}
	if c.cfg.Log == nil {
		c.cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.OIDC.Issuer != "" {
		c.issuer = newIssuer(cfg.OIDC.withDefaults(), c.now)
	}
	return c, nil
}

// OIDC describes a login at an issuer by OpenID Connect: its authorization code flow with PKCE.
// The API must trust the issuer's tokens too, since one of them becomes the session.
type OIDC struct {
	Issuer       string // its URL, which is also the claim iss; "": there is no such login
	ClientID     string
	ClientSecret string   // "": a public client
	Scopes       []string // what is asked for; default openid; openid is always among them
	// Token says which token becomes the session: TokenID, the default, or TokenAccess, which must
	// be a JWT.
	Token string
	// Timeout bounds each exchange with the issuer; 0: 10 s.
	Timeout time.Duration
}

// Values of OIDC.Token.
const (
	TokenID     = "id"
	TokenAccess = "access"
)

func (o OIDC) withDefaults() OIDC {
	o.Token = cmp.Or(o.Token, TokenID)
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	if !slices.Contains(o.Scopes, "openid") {
		o.Scopes = append([]string{"openid"}, o.Scopes...)
	}
	return o
}

// Check refuses settings that can't work. The error is an InvalidField of oidc-issuer,
// oidc-client-id or oidc-token. It doesn't ask the issuer: a node starts without it.
func (o OIDC) Check() error {
	if o.Issuer == "" {
		if o.ClientID != "" || o.ClientSecret != "" {
			return asyncflow.InvalidField("oidc-issuer",
				"must be set: a client belongs to an issuer")
		}
		return nil
	}
	if u, err := url.Parse(o.Issuer); err != nil || u.Host == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" || !secure(u) {
		return asyncflow.InvalidField("oidc-issuer",
			"must be an absolute https URL without user, query and fragment")
	}
	if o.ClientID == "" {
		return asyncflow.InvalidField("oidc-client-id", "must be set beside the issuer")
	}
	if o.Token != "" && o.Token != TokenID && o.Token != TokenAccess {
		return asyncflow.InvalidField("oidc-token", "is %.20q; it must be %s or %s", o.Token,
			TokenID, TokenAccess)
	}
	return nil
}

// secure reports whether nobody on the way can read or change what goes to a URL: it is https, or
// leads to this machine.
func secure(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" ||
		u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback())
}
