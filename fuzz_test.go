package asyncflow_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// There is one spelling of a task id: what is read is written the same, and every id is read.
func FuzzTaskID(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string, position uint32, n uint64) {
		id, err := asyncflow.ParseTaskID(text)
		if err != nil {
			require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
		} else {
			require.Equal(t, text, id.String())
			require.NoError(t, asyncflow.CheckName(id.Type))
		}
		if asyncflow.CheckName(text) == nil {
			made := asyncflow.NewTaskID(text, int(position%(1<<22-1))+1, int64(n%(1<<40-1))+1)
			back, err := asyncflow.ParseTaskID(made.String())
			require.NoError(t, err, made.String())
			require.Equal(t, made, back)
		}
	})
}

// A URL that is registered is a plain one: a name in one spelling, which the HTTP client
// takes for the same name.
func FuzzEndpointURL(f *testing.F) {
	f.Fuzz(func(t *testing.T, raw string) {
		e := asyncflow.Endpoint{Type: "t", Stage: "s", URL: raw}
		err := e.Validate(asyncflow.Egress{})
		if err != nil {
			require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
			return
		}
		require.NoError(t, e.Validate(asyncflow.Egress{AllowHTTP: true, AllowPrivate: true}),
			"a wider policy allows no less")
		u, err := url.Parse(raw)
		require.NoError(t, err)
		require.Equal(t, "https", u.Scheme)
		require.Nil(t, u.User)
		require.NotContains(t, raw, "#")
		_, err = netip.ParseAddr(u.Hostname())
		require.Error(t, err, "an address in place of a name")
		require.Empty(t, strings.Trim(strings.ToLower(u.Hostname()),
			"abcdefghijklmnopqrstuvwxyz0123456789-_."))
		req, err := http.NewRequest(http.MethodPost, raw, nil)
		require.NoError(t, err)
		require.Equal(t, u.Host, req.URL.Host)
	})
}

// samples are addresses of all kinds.
var samples = []netip.AddrPort{
	netip.MustParseAddrPort("93.184.216.34:443"), netip.MustParseAddrPort("10.1.2.3:8443"),
	netip.MustParseAddrPort("127.0.0.1:80"),
	netip.MustParseAddrPort("[::1]:443"), netip.MustParseAddrPort("[64:ff9b::7f00:1]:443"),
	netip.MustParseAddrPort("[2606:2800::1]:443"),
}

// An entry of the operator's lists is read the same again; denying it lets nothing more
// through, and allowing it opens no private network that it doesn't name as one.
func FuzzEgressRule(f *testing.F) {
	f.Fuzz(func(t *testing.T, entry, host string) {
		denied, err := asyncflow.ParseDenied([]string{entry})
		allowed, errAllowed := asyncflow.ParseAllowed([]string{entry})
		if err != nil {
			require.Error(t, errAllowed)
			return
		}
		again, err := asyncflow.ParseDenied([]string{denied[0].String()})
		require.NoError(t, err)
		require.Equal(t, denied, again)
		for _, to := range samples {
			require.False(t, asyncflow.Egress{Deny: denied, Allow: allowed}.Permits(host, to,
				false) && !(asyncflow.Egress{Deny: denied}).Permits(host, to, false),
				"deny beats allow")
			if (asyncflow.Egress{Deny: denied}).Permits(host, to, true) {
				t.Errorf("%q: a list of what is denied opens %s", entry, to)
			}
			if errAllowed == nil && (asyncflow.Egress{Allow: allowed}).Permits(host, to, true) {
				require.NotContains(t, entry, "*")
				require.Regexp(t, `^[^a-zA-Z_]*[0-9:]`, strings.Trim(entry, " []abcdefABCDEF"),
					"only a network opens one")
			}
		}
	})
}

// A duration that is read lasts as long as all of its parts together, whatever their units and
// their order, and is written as a text that lasts as long.
func FuzzDuration(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string, number uint16, unit, other uint8) {
		units := []string{"ns", "us", "ms", "s", "m", "h", "d", "w"}
		mixed := fmt.Sprint(number, units[int(unit)%len(units)], 3, units[int(other)%len(units)])
		_, err := asyncflow.ParseDuration(mixed)
		require.NoError(t, err, mixed)
		for _, text := range []string{text, mixed, text + mixed, mixed + text} {
			var d asyncflow.Duration
			if d.UnmarshalText([]byte(text)) != nil {
				continue
			}
			parts, want := lasts(t, text)
			off := new(big.Rat).Sub(want, new(big.Rat).SetInt64(int64(d.Std())))
			require.LessOrEqual(t, off.Abs(off).Cmp(big.NewRat(int64(parts), 1)), 0,
				"%q is read as %s", text, d)
			again, err := asyncflow.ParseDuration(d.Text())
			require.NoError(t, err, text)
			require.Equal(t, d.Std(), again, "%q is written as %s", text, d.Text())
		}
	})
}

// unitsOfTime holds the units of durations, in nanoseconds.
var unitsOfTime = map[string]int64{"ns": 1, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9,
	"m": 60e9, "h": 3600e9, "d": 24 * 3600e9, "w": 7 * 24 * 3600e9}

// lasts reads a duration part by part, and returns the number of its parts and its nanoseconds.
func lasts(t *testing.T, text string) (parts int, sum *big.Rat) {
	t.Helper()
	sum = new(big.Rat)
	rest := strings.TrimLeft(text, "+-")
	for rest != "" && rest != "0" {
		unit := strings.TrimLeft(rest, "0123456789.")
		number := strings.TrimSuffix(strings.TrimSuffix(rest, unit), ".")
		end := strings.IndexAny(unit, "0123456789.")
		if end < 0 {
			end = len(unit)
		}
		unit, rest = unit[:end], unit[end:]
		require.Contains(t, unitsOfTime, unit, text)
		n, ok := new(big.Rat).SetString(number)
		require.True(t, ok, "%q has the number %q", text, number)
		sum.Add(sum, n.Mul(n, new(big.Rat).SetInt64(unitsOfTime[unit])))
		parts++
	}
	if strings.HasPrefix(text, "-") {
		sum.Neg(sum)
	}
	return parts, sum
}

// A retry policy is written as it was read, and its pauses are bounded.
func FuzzRetryPolicy(f *testing.F) {
	f.Fuzz(func(t *testing.T, doc []byte, attempt, status int, random float64) {
		var p asyncflow.RetryPolicy
		if json.Unmarshal(doc, &p) != nil {
			return
		}
		full := pipeline()
		full.Stages[0].Retry = p
		if full.WithDefaults().Validate() != nil {
			return
		}
		raw, err := json.Marshal(p)
		require.NoError(t, err)
		var back asyncflow.RetryPolicy
		require.NoError(t, json.Unmarshal(raw, &back))
		require.Equal(t, p, back)
		if attempt < 1 || !(random >= 0 && random < 1) {
			return
		}
		pause := p.Interval.Pause(asyncflow.Failure{Attempt: attempt, Status: status, Rand: random})
		require.GreaterOrEqual(t, pause, seconds(0))
		require.LessOrEqual(t, pause, seconds(asyncflow.MaxInterval))
	})
}

// A pointer leads to the same part as in a document that is decoded step by step.
func FuzzPointTo(f *testing.F) {
	f.Fuzz(func(t *testing.T, doc, pointer string) {
		if pointer != "" && pointer[0] != '/' || len(pointer) > asyncflow.MaxPointer {
			return
		}
		part, err := asyncflow.PointTo(json.RawMessage(doc), pointer)
		if asyncflow.CheckJSON([]byte(doc)) != nil {
			return
		}
		want, ok := decodedAt(doc, pointer)
		require.Equal(t, ok, err == nil, err)
		require.Equal(t, strings.Trim(want, " \t\r\n"), strings.Trim(string(part), " \t\r\n"))
		work, err := asyncflow.FanOut{Items: asyncflow.WholeContext}.Spread(json.RawMessage(doc))
		var list []json.RawMessage
		if json.Unmarshal([]byte(doc), &list) == nil && list != nil {
			require.NoError(t, err)
			require.Equal(t, len(list), work.Count)
			require.Equal(t, list, append([]json.RawMessage{}, work.Items(0, work.Count)...))
			require.Equal(t, list[work.Count/2:],
				append([]json.RawMessage{}, work.Items(work.Count/2, work.Count)...))
		} else {
			require.Error(t, err)
		}
	})
}

// decodedAt decodes a valid document to the part at a pointer; ok is false if there is none.
func decodedAt(doc, pointer string) (part string, ok bool) {
	if pointer == "" {
		return doc, true
	}
	for _, step := range strings.Split(pointer[1:], "/") {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		var fields map[string]json.RawMessage
		var list []json.RawMessage
		switch {
		case json.Unmarshal([]byte(doc), &fields) == nil:
			next, ok := fields[step]
			if !ok {
				return "", false
			}
			doc = string(next)
		case json.Unmarshal([]byte(doc), &list) == nil:
			n, err := strconv.Atoi(step)
			if err != nil || n < 0 || n >= len(list) || strconv.Itoa(n) != step {
				return "", false
			}
			doc = string(list[n])
		default:
			return "", false
		}
	}
	return doc, true
}
