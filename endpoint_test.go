package asyncflow_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestEndpointValidate(t *testing.T) {
	const (
		absolute = "url must be an absolute https URL such as https://worker.example.com/resize"
		noHTTP   = "url must be https: plain http is off (the operator's --allow-http)"
		noUser   = "url must not hold a user or a password"
	)
	const (
		noAddress = "url must name its host: addresses are not taken (the operator's " +
			"--allow-private-networks, or a network of --egress-allow)"
		spelled = "url must name its host, or hold an address as 192.0.2.1: other spellings of " +
			"numbers are not taken"
		notASCII = "url must be ASCII, without spaces and backslashes: percent-encode them, and " +
			"write international names in Punycode, as xn--…"
		dressed = "url must not hold an IPv4 address that is written as IPv6"
		noLabel = "url must name its host with letters, digits, hyphens and dots"
	)
	type when struct {
		url, want string
		egress    asyncflow.Egress
	}
	http := asyncflow.Egress{AllowHTTP: true}
	private := asyncflow.Egress{AllowHTTP: true, AllowPrivate: true}
	parallel(t, map[string]when{
		"https":            {url: "https://worker.example.com/resize?size=1"},
		"no path":          {url: "https://worker.example.com"},
		"port":             {url: "https://worker.example.com:8443/"},
		"upper-case https": {url: "HTTPS://worker.example.com/"},
		"container's name": {url: "https://worker_1:8443/"},
		"Punycode":         {url: "https://xn--bcher-kva.example/"},
		"http allowed":     {url: "http://worker.example.com:9000/", egress: http},
		"address allowed":  {url: "http://127.0.0.1:9000/", egress: private},
		"IPv6 allowed":     {url: "https://[fd00::1]:8443/", egress: private},
		"this machine":     {url: "http://localhost:9000/", egress: private},
		"a zone": {url: "http://[fe80::1%25eth0]/", egress: private,
			want: "url must not hold a zone: it means something to one machine only"},
		"mapped":      {url: "http://[::ffff:127.0.0.1]/", egress: private, want: dressed},
		"NAT64":       {url: "http://[64:ff9b::7f00:1]/", egress: private, want: dressed},
		"octal":       {url: "http://0177.0.0.1/", egress: private, want: spelled},
		"decimal":     {url: "http://2130706433/", egress: private, want: spelled},
		"hexadecimal": {url: "http://0x7f.1/", egress: private, want: spelled},

		"IPv4": {url: "https://93.184.216.34/", want: noAddress},
		"IPv6": {url: "https://[2606:2800::1]:8443/", want: noAddress},
		"localhost": {url: "https://localhost/",
			want: "url names this machine: it must be a host that others know too"},
		"dot at end": {url: "https://worker.example.com./",
			want: "url must not end its host in a dot"},
		"two dots":     {url: "https://worker..example.com/", want: noLabel},
		"a star":       {url: "https://*.example.com/", want: noLabel},
		"not ASCII":    {url: "https://bücher.example/", want: notASCII},
		"path":         {url: "https://worker.example.com/größe", want: notASCII},
		"space inside": {url: "https://worker.example.com/a b", want: notASCII},
		"backslash":    {url: `https://worker.example.com/a\b`, want: notASCII},
		"port's sign": {url: "https://worker.example.com:0443/",
			want: `url has the port "0443"; it must be 1 to 65535`},
		"long host": {url: "https://" + strings.Repeat("abcdefgh.", 28) + "ab/",
			want: "url has a host that is too long; the limit is 253 bytes"},
		"http":            {url: "http://worker.example.com/", want: noHTTP},
		"upper-case http": {url: "HTTP://worker.example.com/", want: noHTTP},

		"empty":           {url: "", want: "url is required"},
		"relative":        {url: "/resize", want: absolute},
		"no scheme":       {url: "worker.example.com/resize", want: absolute},
		"scheme-relative": {url: "//worker.example.com/resize", want: absolute},
		"no host":         {url: "https:///resize", want: absolute},
		"only a port":     {url: "https://:443/", want: absolute},
		"only a user":     {url: "https://user@/", want: absolute},
		"opaque":          {url: "https:worker.example.com", want: absolute},
		"ftp":             {url: "ftp://worker.example.com/", want: absolute},
		"file":            {url: "file:///etc/passwd", want: absolute},
		"gopher":          {url: "gopher://worker.example.com/", want: absolute},
		"javascript":      {url: "javascript:alert(1)", want: absolute},
		"unix":            {url: "unix:///run/docker.sock", want: absolute},
		"space":           {url: "https://worker example.com/", want: absolute},
		"leading space":   {url: " https://worker.example.com/", want: absolute},
		"newline":         {url: "https://worker.example.com/\nX-Evil: 1", want: absolute},
		"NUL":             {url: "https://worker.example.com/\x00", want: absolute},
		"bad port":        {url: "https://worker.example.com:http/", want: absolute},
		"bad escape":      {url: "https://worker.example.com/%zz", want: absolute},

		"user":          {url: "https://user@worker.example.com/", want: noUser},
		"password":      {url: "https://user:pass@worker.example.com/", want: noUser},
		"empty user":    {url: "https://@worker.example.com/", want: noUser},
		"look-alike":    {url: "https://worker.example.com@evil.example.com/", want: noUser},
		"user, http ok": {url: "http://user@worker.example.com/", want: noUser, egress: http},
		"fragment": {url: "https://worker.example.com/#part",
			want: "url must not hold a fragment"},
		"empty one": {url: "https://worker.example.com/#", want: "url must not hold a fragment"},
		"longest":   {url: urlOf(2048)},
		"too long":  {url: urlOf(2049), want: "url is 2049 bytes long; the limit is 2048"},
	}, func(t *testing.T, c when) {
		e := asyncflow.Endpoint{Type: "thumbnails", Stage: "resize", URL: c.url}
		requireRefusal(t, e.Validate(c.egress), asyncflow.CodeInvalid, c.want)
	})
}

func urlOf(length int) string {
	const start = "https://worker.example.com/"
	return start + strings.Repeat("a", length-len(start))
}

func TestEndpointNames(t *testing.T) {
	t.Parallel()
	e := asyncflow.Endpoint{Type: "Thumbnails", Stage: strings.Repeat("a", 41), URL: "ftp://"}
	requireRefusal(t, e.Validate(asyncflow.Egress{}), asyncflow.CodeInvalid,
		"type must start with a lower-case letter"+
			"; stage is 41 characters long; the limit is 40"+
			"; url must be an absolute https URL such as https://worker.example.com/resize")
}

func TestEndpointWeight(t *testing.T) {
	t.Parallel()
	for weight, want := range map[int]string{0: "", 1: "", 100: "",
		-1: "weight is -1; it must be 0 to 100", 101: "weight is 101; it must be 0 to 100"} {
		t.Run(fmt.Sprint(weight), func(t *testing.T) {
			e := asyncflow.Endpoint{Type: "thumbnails", Stage: "resize",
				URL:    "https://worker.example.com",
				Weight: weight}
			requireRefusal(t, e.Validate(asyncflow.Egress{}), asyncflow.CodeInvalid, want)
		})
	}
}

// Endpoints are picked as often as their weights say; those that get nothing are never picked.
func TestChoose(t *testing.T) {
	t.Parallel()
	all := []asyncflow.Endpoint{
		{ID: "drained", Weight: 0},
		{ID: "one", Weight: 1},
		{ID: "unproven", Weight: 100, Challenged: true},
		{ID: "three", Weight: 3, Challenged: true, VerifiedAt: now},
		{ID: "six", Weight: 6},
		{ID: "last, drained", Weight: 0},
	}
	require.True(t, asyncflow.Serves(all))
	endpoints := pointers(all)
	const n = 1000
	count := map[string]int{}
	for i := range n {
		count[asyncflow.Choose(endpoints, float64(i)/n).ID]++
	}
	require.Equal(t, map[string]int{"one": n / 10, "three": n * 3 / 10, "six": n * 6 / 10}, count)
	require.Equal(t, "six", asyncflow.Choose(endpoints, math.Nextafter(1, 0)).ID)

	for _, none := range [][]asyncflow.Endpoint{nil, {all[0]}, {all[0], all[2]}} {
		require.Nil(t, asyncflow.Choose(pointers(none), 0.5))
		require.False(t, asyncflow.Serves(none))
	}
}

func pointers(endpoints []asyncflow.Endpoint) (all []*asyncflow.Endpoint) {
	for i := range endpoints {
		all = append(all, &endpoints[i])
	}
	return all
}

func TestChooseIsFair(t *testing.T) {
	t.Parallel()
	endpoints := []*asyncflow.Endpoint{{ID: "a", Weight: 20}, {ID: "b", Weight: 80}}
	const n = 100_000
	random, a := rand.New(rand.NewPCG(1, 2)), 0
	for range n {
		if asyncflow.Choose(endpoints, random.Float64()).ID == "a" {
			a++
		}
	}
	require.InDelta(t, n/5, a, n/100)
}

func TestMoveToAndJudge(t *testing.T) {
	t.Parallel()
	const url, other = "https://worker.example.com/", "https://other.example.com/"
	e := asyncflow.Endpoint{URL: "https://before.example.com/", Challenged: true, VerifiedAt: now,
		VerificationError: "old"}
	require.True(t, e.Proven())
	e.MoveTo(url, true)
	require.Equal(t, asyncflow.Endpoint{URL: url, Challenged: true}, e,
		"nothing of what was proven of another URL is left")
	require.False(t, e.Proven())

	e.Judge(other, "", now, true)
	require.False(t, e.Proven(), "another URL was challenged")
	e.Judge(url, "no answer", now, true)
	require.False(t, e.Proven())
	require.Equal(t, "no answer", e.VerificationError)
	e.Judge(url, "", now, true)
	require.True(t, e.Proven())
	require.Equal(t, now, e.VerifiedAt)
	require.Empty(t, e.VerificationError)
	e.Judge(url, "no answer", now.Add(time.Hour), true)
	require.True(t, e.Proven(), "a failure takes nothing away")
	require.Equal(t, now, e.VerifiedAt)

	e.MoveTo(other, true)
	e.Judge(other, "no answer", now, false)
	require.True(t, e.Proven(), "nothing has to be proven any more")
	unneeded := asyncflow.Endpoint{URL: url}
	unneeded.Judge(url, "no answer", now, true)
	require.True(t, unneeded.Proven(), "nor did it have to")
}

func TestSameOrigin(t *testing.T) {
	t.Parallel()
	const a = "https://worker.example.com/resize"
	for b, same := range map[string]bool{
		a: true, "https://worker.example.com/other?x=1": true,
		"https://WORKER.example.com:443/":  true,
		"HTTPS://worker.example.com":       true,
		"http://worker.example.com/resize": false, "https://worker.example.com:8443/resize": false,
		"https://example.com/resize":               false,
		"https://worker.example.com.evil.example/": false, "%": false,
	} {
		t.Run(b, func(t *testing.T) {
			require.Equal(t, same, asyncflow.SameOrigin(a, b), b)
		})
	}
}
