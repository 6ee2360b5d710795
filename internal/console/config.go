package console

import (
	"errors"
	"log/slog"
	"regexp"
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
	Name  string // such as "staging"; at most MaxInstanceName characters
	Color string // #rrggbb; "": the page's own
}

// MaxInstanceName bounds the name of an instance, in characters.
const MaxInstanceName = 40

var colorForm = regexp.MustCompile(`^#[0-9a-fA-F]{6}$`)

// Check refuses a name or a color that the page can't show. The error is an InvalidField of
// instance-name or instance-color.
func (i Instance) Check() error {
	if utf8.RuneCountInString(i.Name) > MaxInstanceName || !utf8.ValidString(i.Name) ||
		strings.ContainsFunc(i.Name, unicode.IsControl) {
		return asyncflow.InvalidField("instance-name",
			"must be at most %d characters, without control characters", MaxInstanceName)
	}
	if i.Color != "" && !colorForm.MatchString(i.Color) {
		return asyncflow.InvalidField("instance-color", "is %.20q; it must be of the form #rrggbb",
			i.Color)
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
	if err := errors.Join(cfg.Instance.Check(), cfg.OIDC.Check()); err != nil {
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
