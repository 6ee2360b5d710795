package asyncflow_test

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// policyOf returns a policy from comma-separated lists.
func policyOf(t testing.TB, allow, deny string) asyncflow.Egress {
	t.Helper()
	split := func(list string) []string {
		if list == "" {
			return nil
		}
		return strings.Split(list, ",")
	}
	allowed, err := asyncflow.ParseAllowed(split(allow))
	require.NoError(t, err)
	denied, err := asyncflow.ParseDenied(split(deny))
	require.NoError(t, err)
	return asyncflow.Egress{Allow: allowed, Deny: denied}
}

// The lists and the kind of address decide whether a connection is permitted.
func TestEgressPermits(t *testing.T) {
	type when struct {
		allow, deny string
		private     bool // AllowPrivate
		host, to    string
		special     bool
		want        bool
	}
	const public, inner = "93.184.216.34:443", "10.1.2.3:443"
	parallel(t, map[string]when{
		"public":              {to: public, want: true},
		"special":             {to: inner, special: true},
		"special, private on": {to: inner, special: true, private: true, want: true},

		"opened network":   {allow: "10.1.2.0/24", to: inner, special: true, want: true},
		"opened address":   {allow: "10.1.2.3", to: inner, special: true, want: true},
		"beside it":        {allow: "10.1.2.0/24", to: "10.1.3.3:443", special: true},
		"opened on a port": {allow: "10.1.2.0/24:443", to: inner, special: true, want: true},
		"on another port":  {allow: "10.1.2.0/24:443", to: "10.1.2.3:80", special: true},
		"in a range":       {allow: "10.1.2.0/24:400-500", to: inner, special: true, want: true},
		"below the range":  {allow: "10.1.2.0/24:444-500", to: inner, special: true},
		"IPv6 with a port": {allow: "[fd00::/8]:443", to: "[fd00::1]:443", special: true,
			want: true},
		"IPv6 on another":      {allow: "[fd00::/8]:443", to: "[fd00::1]:444", special: true},
		"public is not listed": {allow: "10.1.2.0/24", to: public},
		"public is":            {allow: "10.1.2.0/24,*", to: public, want: true},
		"a star opens nothing": {allow: "*", host: "h", to: inner, special: true},
		"a host opens nothing": {allow: "db.internal", host: "db.internal", to: inner,
			special: true},
		"a suffix opens nothing": {allow: "*.internal", host: "db.internal", to: inner,
			special: true},
		"a port opens nothing": {allow: ":443", to: inner, special: true},
		"private on, then a host": {allow: "db.internal", private: true, host: "db.internal",
			to: inner, special: true, want: true},
		"private on, another": {allow: "db.internal", private: true, host: "x.internal", to: inner,
			special: true},

		"listed host": {allow: "a.example.com", host: "a.example.com", to: public,
			want: true},
		"in capitals": {allow: "A.Example.com", host: "a.eXample.COM", to: public,
			want: true},
		"host not listed": {allow: "a.example.com", host: "b.example.com", to: public},
		"below the suffix": {allow: "*.example.com", host: "a.b.example.com", to: public,
			want: true},
		"the suffix itself":  {allow: "*.example.com", host: "example.com", to: public},
		"only looks like it": {allow: "*.example.com", host: "evilexample.com", to: public},
		"host on its port": {allow: "a.example.com:443", host: "a.example.com", to: public,
			want: true},
		"host on another port": {allow: "a.example.com:8443", host: "a.example.com", to: public},
		"any host on a port":   {allow: ":443", host: "a.example.com", to: public, want: true},
		"a star on a port":     {allow: "*:8443", host: "a.example.com", to: public},

		"denied network":       {deny: "93.184.216.0/24", to: public},
		"denied host":          {deny: "a.example.com", host: "A.example.com", to: public},
		"denied suffix":        {deny: "*.example.com", host: "a.example.com", to: public},
		"denied port":          {deny: ":443", to: public},
		"another port":         {deny: ":1-442", to: public, want: true},
		"denied beats allowed": {allow: "*", deny: "93.184.216.34", to: public},
		"and an opened network": {allow: "10.0.0.0/8", deny: "10.1.2.0/24", to: inner,
			special: true},
		"its neighbour is open": {allow: "10.0.0.0/8", deny: "10.1.3.0/24", to: inner,
			special: true, want: true},
		"and private networks": {deny: "169.254.0.0/16", private: true, to: "169.254.169.254:80",
			special: true},
		"all of IPv4": {deny: "0.0.0.0/0", to: public},
		"mapped": {deny: "169.254.0.0/16", private: true,
			to: "[::ffff:169.254.169.254]:80", special: true},
		"NAT64": {deny: "169.254.0.0/16", private: true, to: "[64:ff9b::a9fe:a9fe]:80",
			special: true},
		"NAT64 of a site": {deny: "169.254.0.0/16", private: true,
			to: "[64:ff9b:1:a9fe:a9:fe00::]:80", special: true},
		"6to4": {deny: "169.254.0.0/16", private: true, to: "[2002:a9fe:a9fe::1]:80",
			special: true},
		"Teredo's client": {deny: "169.254.0.0/16", private: true, to: "[2001::5601:5601]:80",
			special: true},
		"Teredo's server": {deny: "169.254.0.0/16", private: true, to: "[2001:0:a9fe:a9fe::]:80",
			special: true},
		"translated": {deny: "169.254.0.0/16", private: true, to: "[::ffff:0:a9fe:a9fe]:80",
			special: true},
		"compatible": {deny: "169.254.0.0/16", private: true, to: "[::a9fe:a9fe]:80",
			special: true},
		"ISATAP": {deny: "169.254.0.0/16", private: true, to: "[fe80::5efe:a9fe:a9fe]:80",
			special: true},
		"with a zone": {deny: "fe80::/10", private: true, to: "[fe80::1%lo]:80", special: true},
		"loopback isn't mapped": {deny: "0.0.0.0/8", private: true, to: "[::1]:80", special: true,
			want: true},
	}, func(t *testing.T, c when) {
		e := policyOf(t, c.allow, c.deny)
		e.AllowPrivate = c.private
		require.Equal(t, c.want, e.Permits(c.host, netip.MustParseAddrPort(c.to), c.special))
	})
}

// The lists apply to a URL before its name is resolved.
func TestEgressRefuses(t *testing.T) {
	const byRule = "is where the operator lets no delivery go (--egress-allow, --egress-deny)"
	type when struct{ allow, deny, url, want string }
	parallel(t, map[string]when{
		"nothing said": {url: "https://a.example.com/"},
		"denied host": {deny: "a.example.com", url: "https://A.example.com/",
			want: byRule},
		"denied port":            {deny: ":22", url: "https://a.example.com:22/", want: byRule},
		"https' own port":        {deny: ":443", url: "https://a.example.com/", want: byRule},
		"network: not known yet": {deny: "10.0.0.0/8", url: "https://a.example.com/"},
		"not allowed": {allow: "b.example.com", url: "https://a.example.com/",
			want: byRule},
		"allowed": {allow: "b.example.com,*.example.com:443",
			url: "https://a.example.com/"},
		"may be in the network": {allow: "10.0.0.0/8", url: "https://a.example.com/"},
		"not on that port": {allow: "10.0.0.0/8:8443", url: "https://a.example.com/",
			want: byRule},
		"an opened address": {allow: "10.0.0.0/8", url: "https://10.1.2.3/"},
		"opened and denied": {allow: "10.0.0.0/8", deny: "10.1.0.0/16", url: "https://10.1.2.3/",
			want: byRule},
		"opened on another port": {allow: "10.0.0.0/8:8443", url: "https://10.1.2.3/",
			want: "must name its host: addresses are not taken (the operator's " +
				"--allow-private-networks, or a network of --egress-allow)"},
		"this machine, opened":  {allow: "127.0.0.0/8", url: "https://localhost/"},
		"this machine, by IPv6": {allow: "::1", url: "https://localhost/"},
		"this machine, not by star": {allow: "*", url: "https://localhost/",
			want: "names this machine: it must be a host that others know too"},
	}, func(t *testing.T, c when) {
		u, err := url.Parse(c.url)
		require.NoError(t, err)
		require.Equal(t, c.want, policyOf(t, c.allow, c.deny).Refuses(u))
	})
}

// The error about a list names the entry and what is wrong with it.
func TestEgressRuleRefused(t *testing.T) {
	t.Parallel()
	for entry, says := range map[string]string{
		"":                    "is empty",
		"10.0.0.0/33":         "is not a network",
		"10.0.0/8":            "is not a network",
		"10.1.2.3/24":         "has bits beyond its length: write 10.1.2.0/24",
		"fd00::1/8":           "has bits beyond its length: write fd00::/8",
		"::ffff:10.0.0.0/104": "written as IPv6: write it as IPv4",
		"fe80::1%eth0":        "has a zone",
		"010.0.0.1":           "other spellings of numbers",
		"0x7f.1":              "other spellings of numbers",
		"443":                 "other spellings of numbers",
		"10.0.0.0/8:0":        `has the port "0"`,
		"10.0.0.0/8:":         `has the port ""`,
		":65536":              `has the port "65536"`,
		":0443":               `has the port "0443"`,
		":+443":               `has the port "+443"`,
		":500-400":            `has the port "500-400"`,
		":400-":               `has the port "400-"`,
		":1-2-3":              `has the port "1-2-3"`,
		":https":              `has the port "https"`,
		"a.example.com.":      "must not end its host in a dot",
		"a..example.com":      "letters, digits, hyphens and dots",
		"*example.com":        "letters, digits, hyphens and dots",
		"a.*.com":             "letters, digits, hyphens and dots",
		"*.":                  "letters, digits, hyphens and dots",
		"*.*":                 "letters, digits, hyphens and dots",
		"https://a.example":   "has the port",
		"a.example.com/x":     "is not a network",
		"bücher.example":      "Punycode",
		"[fd00::/8":           "is not a network",
		"[fd00::/8]443":       "is not a network",
		"[10.0.0.0/8]:443":    "is not a network",
		"fd00::/8:443":        "is not a network",
		"a b":                 "letters, digits, hyphens and dots",
	} {
		t.Run(entry, func(t *testing.T) {
			t.Parallel()
			for _, parse := range []func([]string) ([]asyncflow.EgressRule,
				error){asyncflow.ParseAllowed, asyncflow.ParseDenied} {
				_, err := parse([]string{"*", entry})
				require.ErrorContains(t, err, says)
				require.ErrorContains(t, err, `has the entry "`+entry+`"`)
			}
		})
	}
	for entry, allowed := range map[string]bool{"0.0.0.0/0": false, "10.0.0.0/7": false,
		"10.0.0.0/8": true, "::/0": false, "fc00::/6": false, "fc00::/7": true} {
		t.Run(entry, func(t *testing.T) {
			_, err := asyncflow.ParseAllowed([]string{entry})
			require.Equal(t, allowed, err == nil, entry)
			_, err = asyncflow.ParseDenied([]string{entry})
			require.NoError(t, err)
		})
	}
	rules, err := asyncflow.ParseAllowed([]string{" *.Example.com:443 "})
	require.NoError(t, err)
	require.Equal(t, "*.Example.com:443", rules[0].String())
}
