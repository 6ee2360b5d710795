package console

import (
	"regexp"
	"strings"
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
	// Instance tells this installation from others; it may be empty.
	Instance Instance

	// Open is a token for requests without a session, as long as they come from a browser on this
	// machine. Empty, as it must be except on a developer's machine: there is none.
	Open string
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
}

// New returns a console. An error says which setting is wrong.
func New(cfg Config) (*Console, error) {
	if err := cfg.Instance.Check(); err != nil {
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
	return &Console{cfg: cfg, seals: seals, files: files}, nil
}
