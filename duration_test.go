package asyncflow_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
)

func TestDurationRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		requireRoundTrip(t, asyncflow.NewDuration(time.Duration(rapid.Int64().Draw(t,
			"nanoseconds"))))
	})
}

func TestDurationIsAString(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{
		`"0s"`:     0,
		`"10s"`:    10 * time.Second,
		`"1m30s"`:  90 * time.Second,
		`"100ms"`:  100 * time.Millisecond,
		`"5m"`:     5 * time.Minute,
		`"-10m"`:   -10 * time.Minute,
		`"1h30m"`:  90 * time.Minute,
		`"1h0m5s"`: time.Hour + 5*time.Second,
		`"24h"`:    24 * time.Hour,
	} {
		t.Run(want, func(t *testing.T) {
			doc, err := json.Marshal(asyncflow.NewDuration(d))
			require.NoError(t, err)
			require.Equal(t, want, string(doc))
			require.Equal(t, d, asyncflow.NewDuration(d).Std())
			require.Equal(t, d.String(), asyncflow.NewDuration(d).String())
		})
	}
}

func TestDurationStaysAsWritten(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"90m":        "90m",
		"0.5h":       "0.5h",
		"1h30m":      "1h30m",
		"1h30m0s":    "1h30m0s",
		"1500ms":     "1500ms",
		"168h":       "168h",
		"7d":         "7d",
		"1w":         "1w",
		"2.5w":       "2.5w",
		"1d12h5m":    "1d12h5m",
		"1w2d3h":     "219h", // Postgres doesn't read it
		"1d500ms":    "1d500ms",
		"1.5d":       "1.5d",
		"1h1d":       "25h",
		"2h500us":    "2h500us",
		"007s":       "007s",
		"0ms":        "0ms",
		"1h1h":       "2h", // Postgres doesn't read it
		"1s1h":       "1h0m1s",
		"1000000ns":  "1ms",
		"+90m":       "1h30m", // the contract doesn't allow it
		".5h":        "30m",
		"1000000.s":  "277h46m40s",
		"1000µs":     "1ms",
		"0.1234567s": "123.4567ms",
		// longer than the contract allows
		"000000001h000000001m000000001s000000001ms": "1h1m1.001s",
	} {
		t.Run(text, func(t *testing.T) {
			d, err := decode[asyncflow.Duration](`"` + text + `"`)
			require.NoError(t, err, text)
			require.Equal(t, want, d.Text())
			doc, err := json.Marshal(d)
			require.NoError(t, err)
			require.Equal(t, `"`+want+`"`, string(doc))
			if plain, err := time.ParseDuration(text); err == nil {
				require.Equal(t, plain, d.Std())
			}
		})
	}
	require.True(t, asyncflow.Batch{MaxWait: asyncflow.Duration{}}.IsZero())
	none, err := decode[asyncflow.Duration](`"0ms"`)
	require.NoError(t, err)
	require.True(t, none.IsZero())
	require.True(t, asyncflow.Batch{MaxWait: none}.IsZero())
}

// Whatever units are mixed, in whatever order, each of them counts.
func TestDurationMixesUnits(t *testing.T) {
	t.Parallel()
	sizes := map[string]time.Duration{"w": 168 * time.Hour, "d": 24 * time.Hour, "h": time.Hour,
		"m": time.Minute, "s": time.Second, "ms": time.Millisecond, "us": time.Microsecond,
		"µs": time.Microsecond, "ns": 1}
	units := slices.Sorted(maps.Keys(sizes))
	rapid.Check(t, func(t *rapid.T) {
		var text string
		var want time.Duration
		for range rapid.IntRange(1, 6).Draw(t, "parts") {
			n := rapid.IntRange(0, 999).Draw(t, "n")
			unit := rapid.SampledFrom(units).Draw(t, "unit")
			text += strconv.Itoa(n) + unit
			want += time.Duration(n) * sizes[unit]
		}
		got, err := asyncflow.ParseDuration(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		got, err = asyncflow.ParseDuration("-" + text)
		require.NoError(t, err, text)
		require.Equal(t, -want, got, text)
		d, err := decode[asyncflow.Duration](`"` + text + `"`)
		require.NoError(t, err)
		again, err := asyncflow.ParseDuration(d.Text())
		require.NoError(t, err)
		require.Equal(t, want, again, d.Text())
	})
}

func TestDurationRefuses(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{`5`, `1.5`, `true`, `{}`, `["5s"]`} {
		t.Run(doc, func(t *testing.T) {
			_, err := decode[asyncflow.Duration](doc)
			require.Error(t, err)
		})
	}
	for text, shown := range map[string]string{
		"":                       `""`,
		"5":                      `"5"`,
		"5 s":                    `"5 s"`,
		"1d2":                    `"1d2"`,
		"1.2.3d4h":               `"1.2.3d4h"`,
		"d":                      `"d"`,
		"1D":                     `"1D"`,
		"-":                      `"-"`,
		"--1d":                   `"--1d"`,
		"1d-1h":                  `"1d-1h"`,
		"106752d":                `"106752d"`, // one day over 2^63 ns
		"15250w2d":               `"15250w2d"`,
		"1y":                     `"1y"`,
		"s":                      `"s"`,
		"9999999999999h":         `"9999999999999h"`,
		"a\x00b":                 `"a\x00b"`,
		strings.Repeat("x", 40):  `"` + strings.Repeat("x", 40) + `"`,
		strings.Repeat("x", 1e6): `"` + strings.Repeat("x", 40) + `…"`,
	} {
		t.Run(text, func(t *testing.T) {
			var d asyncflow.Duration
			require.EqualError(t, d.UnmarshalText([]byte(text)),
				`must be a duration such as "30s" or "7d", not `+shown)
		})
	}
}
