package main

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The commands that the pages for operators name exist, with their arguments and flags. A server
// refuses all of them, and those for a database have none.
func TestCommandsForOperatorsExist(t *testing.T) {
	t.Parallel()
	env := serveAPI(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) })
	commands := regexp.MustCompile("`asyncflow ([^`]+)`" + `|(?m:^asyncflow ((?:[^\\\n]|\\\n)*)$)`)
	words := regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)
	named := regexp.MustCompile(`^(dev|tenants|verify)$|^keys generate`) // not to be run here
	for _, page := range []string{"alerts.md", "operations.md", "where.md"} {
		text, err := os.ReadFile("../../docs/" + page)
		require.NoError(t, err)
		for _, m := range commands.FindAllStringSubmatch(string(text), -1) {
			command := strings.ReplaceAll(m[1]+m[2], "\\\n", " ")
			command = strings.TrimSpace(regexp.MustCompile(`\s[#|].*`).ReplaceAllString(command, ""))
			if named.MatchString(command) {
				continue
			}
			args := words.FindAllString(command, -1)
			for i := range args {
				args[i] = strings.Trim(args[i], `'"`)
			}
			t.Run(page+" "+command, func(t *testing.T) {
				r := runCLI(t, env, args...)
				lacks := strings.HasPrefix(r.stderr, "asyncflow: set ") // what the environment doesn't have
				assert.True(t, lacks || r.code != exitUsage, r.stderr)
			})
		}
	}
}
