package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// durationTypes are the types of flags that take a duration, some of them also a time or a word.
var durationTypes = map[reflect.Type]bool{
	reflect.TypeFor[time.Duration]():       true,
	reflect.TypeFor[asyncflow.Duration]():  true,
	reflect.TypeFor[asyncflow.KeyWindow](): true,
	reflect.TypeFor[asyncflow.Deadline]():  true,
	reflect.TypeFor[timeFlag]():            true,
}

// Every flag and every variable that takes a duration takes days and weeks.
func TestDaysAndWeeksInFlags(t *testing.T) {
	t.Parallel()
	var c cli
	parser, err := kong.New(&c, kong.Exit(func(int) {}))
	require.NoError(t, err)
	flags := 0
	for _, command := range parser.Model.Leaves(false) {
		words := strings.Fields(command.Path())
		for _, f := range command.Flags {
			of := f.Target.Type()
			if of.Kind() == reflect.Pointer {
				of = of.Elem()
			}
			if !durationTypes[of] {
				assert.NotContains(t, of.Name(), "Duration", f.Name)
				continue
			}
			flags++
			t.Run(strings.Join(words, " ")+" --"+f.Name, func(t *testing.T) {
				// Nothing runs: the command ends at the flag that isn't there.
				refusal := func(text string) string {
					args := append(slices.Clone(words), "--"+f.Name+"="+text, "--nope")
					r := runCLI(t, nil, args...)
					require.Equal(t, exitUsage, r.code)
					return r.stderr
				}
				assert.Contains(t, refusal("5x"), f.Name+": ")
				assert.Contains(t, refusal("1w2d12h"), "unknown flag --nope")
			})
		}
	}
	assert.Greater(t, flags, 50)
	for _, name := range []string{"AUDIT_RETENTION", "GRACE", "DRAIN_DELAY", "POLL"} {
		t.Run(name, func(t *testing.T) {
			refusal := func(text string) string {
				return runCLI(t, map[string]string{"ASYNCFLOW_" + name: text}, "serve").stderr
			}
			assert.Contains(t, refusal("5x"), "must be a duration")
			assert.Contains(t, refusal("1w2d12h"), "set DATABASE_URL")
		})
	}
}
