package callbacks

import (
	"bufio"
	"encoding/json"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// hostileURL is a line of testdata/hostile-urls.txt, which explains the format.
type hostileURL struct {
	line      int
	url       string
	addresses string // what its name resolves to; "": it can't even be registered
}

func hostileURLs(t *testing.T) []hostileURL {
	file, err := os.Open("testdata/hostile-urls.txt")
	require.NoError(t, err)
	defer file.Close()
	var all []hostileURL
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		verdict, rest, _ := strings.Cut(lines.Text(), " ")
		h := hostileURL{line: n, url: rest}
		switch {
		case verdict == "" || verdict == "#":
			continue
		case verdict == "dial":
			var found bool
			h.url, h.addresses, found = strings.Cut(rest, " ")
			require.True(t, found, "line %d", n)
		case strings.HasPrefix(rest, `"`):
			require.NoError(t, json.Unmarshal([]byte(rest), &h.url), "line %d", n)
		}
		require.Contains(t, []string{"refused", "dial"}, verdict, "line %d", n)
		all = append(all, h)
	}
	require.NoError(t, lines.Err())
	return all
}

// spellings returns the URL, and the same URL with a port if there is none in it.
func (h hostileURL) spellings(port string) []string {
	u, err := url.Parse(h.url)
	if err != nil || u.Host == "" || strings.HasSuffix(u.Host, ":") || u.Port() != "" {
		return []string{h.url}
	}
	u.Host += ":" + port
	return []string{h.url, u.String()}
}

// No hostile URL gets a connection to a forbidden address, whether it is to be registered or was
// registered before. The name server resolves unknown names to addresses of this machine.
func TestHostileURLs(t *testing.T) {
	t.Parallel()
	names, birds := newNameServer(t), newCanary(t)
	names.setOthers("127.0.0.1", "::1")
	sender, _, fence := fenced(t, Config{Resolver: names.resolver()})
	all := hostileURLs(t)
	require.GreaterOrEqual(t, len(all), 300)
	for _, h := range all {
		err := asyncflow.Endpoint{Type: "thumbnails", Stage: "resize",
			URL: h.url}.Validate(asyncflow.Egress{})
		if h.addresses == "" {
			assert.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err),
				"line %d: %q is registered", h.line, h.url)
		} else {
			assert.NoError(t, err, "line %d", h.line)
			u, err := url.Parse(h.url)
			require.NoError(t, err)
			names.set(u.Hostname(), h.addresses)
		}
		for _, spelling := range h.spellings(birds.port) {
			d := deliveryTo(spelling)
			d.Timeout = time.Second // the canary doesn't answer
			o := sender.Send(t.Context(), []asyncflow.Delivery{d})[0]
			assert.Equal(t, asyncflow.OutcomeFailed, o.Kind, "line %d", h.line)
			assert.Zero(t, o.Status, "line %d", h.line)
			passed := fence.take()
			if h.addresses == "" {
				assert.Empty(t, passed, "line %d: %q is dialled", h.line, spelling)
			}
			for _, to := range passed {
				assert.False(t, isSpecial(to.Addr()), "line %d: %q is dialled at %s", h.line,
					spelling, to)
			}
		}
		if h.addresses != "" {
			u, _ := url.Parse(h.url)
			assert.Positive(t, names.asked(strings.ToLower(u.Hostname())),
				"line %d: its name was resolved",
				h.line)
		}
	}
	birds.requireUntouched(t)
}

// The guard alone would suffice: even without the rules for URLs, no hostile host leads to a
// forbidden address. The name server resolves unknown names to addresses of this machine.
func TestGuardOfHostileHosts(t *testing.T) {
	t.Parallel()
	names, birds := newNameServer(t), newCanary(t)
	names.setOthers("127.0.0.1", "::1")
	_, guard, fence := fenced(t, Config{Resolver: names.resolver()})
	dialled := 0
	for _, h := range hostileURLs(t) {
		u, err := url.Parse(h.url)
		if err != nil || u.Hostname() == "" {
			continue
		}
		if h.addresses != "" {
			names.set(u.Hostname(), h.addresses)
		}
		dialled++
		conn, err := guard.DialContext(t.Context(), "tcp",
			net.JoinHostPort(u.Hostname(), birds.port))
		if !assert.Error(t, err, "line %d: %q", h.line, h.url) {
			conn.Close()
		}
		for _, to := range fence.take() {
			assert.False(t, isSpecial(to.Addr()), "line %d: %q is dialled at %s", h.line, h.url, to)
		}
	}
	require.Greater(t, dialled, 200)
	birds.requireUntouched(t)
}
