package asyncflow_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
)

func TestCheckName(t *testing.T) {
	const (
		start   = "must start with a lower-case letter"
		letters = "may hold lower-case letters, digits, - and _ only"
	)
	t.Parallel()
	for name, want := range map[string]string{
		"a":                     "",
		"thumbnails":            "",
		"a-_9":                  "",
		strings.Repeat("a", 40): "",
		"":                      "is required",
		strings.Repeat("a", 41): "is 41 characters long; the limit is 40",
		"9a":                    start,
		"-a":                    start,
		"_a":                    start,
		"A":                     start,
		"é":                     start,
		"\x00":                  start,
		"aB":                    letters,
		"a.b":                   letters,
		"a b":                   letters,
		"a\n":                   letters,
		"aé":                    letters,
		"a\"b":                  letters,
		"a\xff":                 letters,
	} {
		t.Run(name, func(t *testing.T) {
			if want == "" {
				require.NoError(t, asyncflow.CheckName(name), "%q", name)
			} else {
				require.EqualError(t, asyncflow.CheckName(name), want, "%q", name)
			}
		})
	}
}

// The rule is the one that is written down as a pattern in the contract.
func TestCheckNameIsThePattern(t *testing.T) {
	t.Parallel()
	pattern := regexp.MustCompile(`^[a-z][a-z0-9_-]{0,39}$`)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(names, rapid.String(),
			rapid.StringMatching(`[a-z0-9_A-Z.é-]{0,42}`)).Draw(t,
			"name")
		require.Equal(t, pattern.MatchString(name), asyncflow.CheckName(name) == nil)
	})
}
