package callbacks

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// policy returns a policy that allows plain http, with lists.
func policy(t *testing.T, allow, deny []string) asyncflow.Egress {
	allowed, err := asyncflow.ParseAllowed(allow)
	require.NoError(t, err)
	denied, err := asyncflow.ParseDenied(deny)
	require.NoError(t, err)
	return asyncflow.Egress{AllowHTTP: true, Allow: allowed, Deny: denied}
}

const refusedNetwork = "a network that deliveries must not reach"

// Unless the operator allows more, only the public internet is dialled.
func TestGuardRefuses(t *testing.T) {
	t.Parallel()
	for _, host := range []string{
		"127.0.0.1", "127.8.8.8", "localhost", "::1", "0.0.0.0", "::", "0.1.2.3",
		"::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.0.0.1", "::127.0.0.1",
		"10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1",
		"168.63.129.16", "::ffff:168.63.129.16", "64:ff9b::a83f:8110", "2002:a83f:8110::",
		"169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fc00::1", "fd00:ec2::254",
		"100.64.0.1", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
		"224.0.0.1", "240.0.0.1", "255.255.255.255", "ff02::1", "64:ff9b::7f00:1", "2002:7f00:1::",
		"2001:db8::1", "2606:4700::5efe:10.0.0.1", "2606:4700::200:5efe:a9fe:a9fe",
	} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			_, guard, fence := fenced(t, Config{})
			_, err := guard.DialContext(t.Context(), "tcp", net.JoinHostPort(host, "443"))
			require.ErrorIs(t, err, errPrivate)
			require.Empty(t, fence.take())
		})
	}
}

// A name that resolves to a forbidden address is refused without a connection, and without
// revealing the address. This is the Sender as NewSender wires it.
func TestGuardConnectsToNothing(t *testing.T) {
	t.Parallel()
	names, birds := newNameServer(t), newCanary(t)
	r := setup(t, func(c *Config) {
		c.Egress, c.Resolver = asyncflow.Egress{AllowHTTP: true}, names.resolver()
	})
	for i, address := range []string{"127.0.0.1", "127.8.8.8", "0.0.0.0", "::1", "::",
		"::ffff:127.0.0.1", "127.0.0.1,::1"} {
		t.Run(address, func(t *testing.T) {
			name := fmt.Sprintf("n%d.example.com", i)
			names.set(name, address)
			d := deliveryTo("http://" + name + ":" + birds.port)
			o := r.Send(t.Context(), d)
			require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
			require.Contains(t, o.Error, refusedNetwork)
			require.NotContains(t, o.Error, "127.", "which address it is, is nobody's business")
			require.Equal(t, 1, names.asked(name))
		})
	}
	require.Zero(t, r.dialled.Load())
	birds.requireUntouched(t)
}

// A name server may change its answer each time. Only public addresses are dialled.
func TestRebinding(t *testing.T) {
	t.Parallel()
	const public, public6 = "93.184.216.34", "2606:2800:220:1::1"
	for name, c := range map[string]struct {
		turns  []string
		passed []string // for each delivery, the address that is let through; "": none
	}{
		"public, then private":  {[]string{public, "127.0.0.1"}, []string{public, "", ""}},
		"public, then metadata": {[]string{public, "169.254.169.254"}, []string{public, ""}},
		"private, then public":  {[]string{"10.0.0.1", public}, []string{"", public}},
		"back and forth": {[]string{public, "127.0.0.1", public, "0.0.0.0", public},
			[]string{public, "", public, "", public}},
		"an alias to private":      {[]string{"db.internal=10.0.0.1"}, []string{""}},
		"an alias to this machine": {[]string{public, "localhost=127.0.0.1"}, []string{public, ""}},
		"an alias, then another": {[]string{"cdn.example.net=" + public, "db.internal=127.0.0.1"},
			[]string{public, ""}},
		"private A, public AAAA": {[]string{"127.0.0.1," + public6}, []string{public6}},
		"public A, private AAAA": {[]string{public + ",::1"}, []string{public}},
		"public among private": {[]string{"10.0.0.1,192.168.0.1," + public + ",127.0.0.1"},
			[]string{public}},
		"private once, then with it": {[]string{"127.0.0.1", public + ",127.0.0.1"},
			[]string{"", public}},
		"mapped":     {[]string{public, "::ffff:127.0.0.1"}, []string{public, ""}},
		"translated": {[]string{public6, "64:ff9b::7f00:1"}, []string{public6, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			names, birds := newNameServer(t), newCanary(t)
			sender, _, fence := fenced(t,
				Config{Egress: asyncflow.Egress{AllowHTTP: true}, Resolver: names.resolver()})
			names.set("rebind.example.com", c.turns...)
			for i, want := range c.passed {
				d := deliveryTo("http://rebind.example.com:" + birds.port)
				if want != "" {
					d.Timeout = 2 * time.Second // the canary doesn't answer
				}
				o := sender.Send(t.Context(), []asyncflow.Delivery{d})[0]
				require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
				require.Equal(t, i+1, names.asked("rebind.example.com"),
					"it is resolved once for each delivery")
				if want == "" {
					require.Contains(t, o.Error, refusedNetwork)
					require.Empty(t, fence.take())
					continue
				}
				for _, to := range fence.take() {
					require.Equal(t, want, to.Addr().String())
				}
			}
			birds.requireUntouched(t)
		})
	}
}

// elsewhere listens on the same port as a worker, on another address of this machine.
func elsewhere(t *testing.T, w *worker) *canary {
	_, port, err := net.SplitHostPort(w.url[len("http://"):])
	require.NoError(t, err)
	l, err := net.Listen("tcp4", "127.0.0.2:"+port)
	if err != nil {
		t.Skip("this machine has no 127.0.0.2:", err)
	}
	t.Cleanup(func() { l.Close() })
	return &canary{port: port, listeners: []net.Listener{l}}
}

// requireNobody checks that nobody connected to 127.0.0.2.
func (c *canary) requireNobody(t *testing.T) {
	t.Helper()
	own, err := net.Dial("tcp4", "127.0.0.2:"+c.port)
	require.NoError(t, err)
	defer own.Close()
	first, err := c.listeners[0].Accept()
	require.NoError(t, err)
	defer first.Close()
	require.Equal(t, own.LocalAddr().String(), first.RemoteAddr().String())
}

// An entry of the allow list opens one private network and no other. The deny list wins.
func TestEgressLists(t *testing.T) {
	t.Parallel()
	w := newWorker(t, reply(200, ""))
	birds, names := elsewhere(t, w), newNameServer(t)
	names.set("worker.example.com", "127.0.0.1")
	names.set("other.example.com", "127.0.0.2")
	names.set("both.example.com", "127.0.0.2,127.0.0.1")
	const byRule, inURL = "the operator lets no delivery go to the endpoint's address",
		"is where the operator lets no delivery go"
	for name, c := range map[string]struct {
		allow, deny []string
		private     bool
		host, says  string // "": it arrives
	}{
		"opened": {allow: []string{"127.0.0.1/32"}, host: "worker.example.com"},
		"opened, with the port": {allow: []string{"127.0.0.1:" + birds.port},
			host: "worker.example.com"},
		"as an address": {allow: []string{"127.0.0.1/32"}, host: "127.0.0.1"},
		"its neighbour": {allow: []string{"127.0.0.1/32"}, host: "other.example.com",
			says: refusedNetwork},
		"its neighbour's address": {allow: []string{"127.0.0.1/32"}, host: "127.0.0.2",
			says: "addresses are not taken"},
		"one of two": {allow: []string{"127.0.0.1/32"}, host: "both.example.com"},
		"opened on another port": {allow: []string{"127.0.0.1:1", "*"}, host: "worker.example.com",
			says: refusedNetwork},
		"by its name": {allow: []string{"worker.example.com"}, host: "worker.example.com",
			says: refusedNetwork},
		"denied network": {allow: []string{"127.0.0.0/8"}, deny: []string{"127.0.0.2"},
			host: "other.example.com", says: refusedNetwork},
		"denied, private on": {private: true, deny: []string{"127.0.0.2"},
			host: "other.example.com", says: byRule},
		"denied host": {allow: []string{"127.0.0.0/8"}, deny: []string{"*.example.com"},
			host: "other.example.com", says: inURL},
		"denied port": {allow: []string{"127.0.0.0/8"}, deny: []string{":" + birds.port},
			host: "other.example.com", says: inURL},
		"not listed, private on": {private: true, allow: []string{"127.0.0.1"},
			host: "other.example.com", says: byRule},
		"listed host, private on": {private: true, allow: []string{"worker.example.com"},
			host: "worker.example.com"},
		"another host, private on": {private: true, allow: []string{"worker.example.com"},
			host: "other.example.com", says: inURL},
	} {
		t.Run(name, func(t *testing.T) {
			r := setup(t, func(cfg *Config) {
				cfg.Egress, cfg.Resolver = policy(t, c.allow, c.deny), names.resolver()
				cfg.Egress.AllowPrivate = c.private
			})
			o := r.Send(t.Context(), deliveryTo("http://"+c.host+":"+birds.port))
			if c.says == "" {
				require.Equal(t, asyncflow.OutcomeDone, o.Kind, "%s: %s", name, o.Error)
				return
			}
			require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
			require.Contains(t, o.Error, c.says)
		})
	}
	birds.requireNobody(t)
}

// A kept connection stays with its address. A name that is bound to another address meanwhile needs
// a connection of its own, which is refused.
func TestKeptConnectionKeepsItsAddress(t *testing.T) {
	t.Parallel()
	w := newWorker(t, reply(200, ""))
	birds, names := elsewhere(t, w), newNameServer(t)
	names.set("worker.example.com", "127.0.0.1", "127.0.0.2")
	r := setup(t, func(c *Config) {
		c.Egress, c.Resolver = policy(t, []string{"127.0.0.1"}, nil), names.resolver()
	})
	url := "http://worker.example.com:" + birds.port
	for range 3 {
		o := r.Send(t.Context(), deliveryTo(url))
		require.Equal(t, asyncflow.OutcomeDone, o.Kind, o.Error)
	}
	require.Equal(t, 1, names.asked("worker.example.com"))
	r.routes.idle.Close()
	o := r.Send(t.Context(), deliveryTo(url))
	require.Contains(t, o.Error, refusedNetwork)
	require.Equal(t, int64(1), r.dialled.Load())
	birds.requireNobody(t)
}

// An endpoint that was registered under an older policy must obey the present one.
func TestPolicyOfToday(t *testing.T) {
	t.Parallel()
	w := newWorker(t, reply(200, ""))
	r := setup(t, func(c *Config) { c.Egress.AllowHTTP = false })
	o := r.Send(t.Context(), deliveryTo(w.url))
	requireOutcome(t, asyncflow.Outcome{Kind: asyncflow.OutcomeFailed,
		Failure: asyncflow.FailureEgress,
		Error: "the endpoint's URL must be https: plain http is off (the operator's " +
			"--allow-http)"}, o)
	require.Empty(t, w.all())
	require.Zero(t, r.dialled.Load())
}

// The test's own list of special networks contains the well-known ones.
func TestSpecialNetworks(t *testing.T) {
	t.Parallel()
	for text, special := range map[string]bool{"127.0.0.1": true, "::1": true, "10.0.0.1": true,
		"fd00::1": true, "::ffff:10.0.0.1": true,
		"169.254.169.254": true, "93.184.216.34": false, "2606:2800:220:1::1": false} {
		t.Run(text, func(t *testing.T) {
			require.Equal(t, special, isSpecial(netip.MustParseAddr(text)), text)
		})
	}
}

// A node's own ports are refused on all addresses of its machine, also on public ones, unless the
// operator opens that network.
func TestGuardRefusesItself(t *testing.T) {
	t.Parallel()
	g := newGuard(Config{Egress: policy(t, nil, nil), OwnPorts: []uint16{8080}})
	var listErr error
	g.own.machine = func() ([]net.Addr, error) {
		return []net.Addr{&net.IPNet{IP: net.ParseIP("203.0.114.7"), Mask: net.CIDRMask(24, 32)},
			&net.IPNet{IP: net.ParseIP("2a00:1::7"), Mask: net.CIDRMask(64, 128)}}, listErr
	}
	for range 2 {
		for _, own := range []string{"203.0.114.7:8080", "[2a00:1::7]:8080",
			"[::ffff:203.0.114.7]:8080",
			"[64:ff9b::203.0.114.7]:8080", "[2002:cb00:7207::1]:8080"} {
			require.ErrorContains(t, g.check("w.example.com", own), refusedNetwork, own)
		}
		for _, other := range []string{"203.0.114.7:443", "203.0.114.8:8080"} {
			require.NoError(t, g.check("w.example.com", other), other)
		}
		listErr, g.own.readAt = fmt.Errorf("too many open files"), time.Time{}
	}
	// The operator names addresses that are not the machine's own.
	g.egress = policy(t, nil, []string{"203.0.114.9", "203.0.114.10:8080"})
	for _, denied := range []string{"203.0.114.9:443", "203.0.114.10:8080"} {
		require.ErrorContains(t, g.check("w.example.com", denied), "--egress-deny", denied)
	}
	require.NoError(t, g.check("w.example.com", "203.0.114.10:443"))
	for _, open := range []asyncflow.Egress{asyncflow.Anywhere,
		policy(t, []string{"203.0.114.0/24"}, nil)} {
		g.egress = open
		require.NoError(t, g.check("w.example.com", "203.0.114.7:8080"))
	}
}
