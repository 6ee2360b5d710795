package asyncflow_test

import (
	"encoding/json"
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
			plain, err := time.ParseDuration(text)
			require.NoError(t, err)
			require.Equal(t, plain, d.Std())
		})
	}
	require.True(t, asyncflow.Batch{MaxWait: asyncflow.Duration{}}.IsZero())
	none, err := decode[asyncflow.Duration](`"0ms"`)
	require.NoError(t, err)
	require.True(t, none.IsZero())
	require.True(t, asyncflow.Batch{MaxWait: none}.IsZero())
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
		"1d":                     `"1d"`,
		"s":                      `"s"`,
		"9999999999999h":         `"9999999999999h"`,
		"a\x00b":                 `"a\x00b"`,
		strings.Repeat("x", 40):  `"` + strings.Repeat("x", 40) + `"`,
		strings.Repeat("x", 1e6): `"` + strings.Repeat("x", 40) + `…"`,
	} {
		t.Run(text, func(t *testing.T) {
			var d asyncflow.Duration
			require.EqualError(t, d.UnmarshalText([]byte(text)),
				`must be a duration such as "30s" or "5m", not `+shown)
		})
	}
}
