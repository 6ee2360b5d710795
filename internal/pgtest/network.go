package pgtest

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// Network is a network path to a database that may go silent: bytes get lost without an error,
// as behind a firewall that forgets connections, or when a host dies.
type Network struct {
	t        testing.TB
	listener net.Listener

	mu       sync.Mutex
	upstream string // of new connections
	silent   bool   // new connections, too
	paths    []*path
	noted    *Statements // that new connections send; nil: nobody asks
}

// path is one connection with its two ends.
type path struct {
	ends [2]net.Conn
	mu   sync.Mutex
	cut  bool
}

// Behind returns a network in front of the database at a URL, and the URL through that network.
func Behind(t testing.TB, rawURL string) (*Network, string) {
	t.Helper()
	NotOnCitus(t, "the test's network leads to one server, and nodes go to the workers as well")
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	n := &Network{t: t, upstream: u.Host, listener: l}
	t.Cleanup(n.close)
	go n.accept()
	u.Host = l.Addr().String()
	return n, u.String()
}

// Forget silences the open connections for ever. New ones work.
func (n *Network) Forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.paths {
		p.mu.Lock()
		p.cut = true
		p.mu.Unlock()
	}
}

// Silence is Forget, and new connections are silent as well until Heal.
func (n *Network) Silence() {
	n.mu.Lock()
	n.silent = true
	n.mu.Unlock()
	n.Forget()
}

// Heal lets new connections through. Silenced ones stay silent.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent = false
}

// Lead makes new connections lead to the database at another URL, as after a move of an address.
func (n *Network) Lead(rawURL string) {
	u, err := url.Parse(rawURL)
	if err != nil {
		n.t.Fatalf("pgtest: %v", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.upstream = u.Host
}

// leadsTo returns the address to which new connections lead.
func (n *Network) leadsTo() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.upstream
}

func (n *Network) accept() {
	for {
		near, err := n.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", n.leadsTo())
		if err != nil {
			_ = near.Close()
			continue
		}
		n.mu.Lock()
		p := &path{ends: [2]net.Conn{near, far}, cut: n.silent}
		n.paths = append(n.paths, p)
		sent := &messages{to: n.noted}
		n.mu.Unlock()
		go p.copyUntilCut(near, far, sent)
		go p.copyUntilCut(far, near, &messages{})
	}
}

// copyUntilCut copies bytes one way until the path is cut; then it discards them.
func (p *path) copyUntilCut(from, to net.Conn, seen *messages) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		cut := p.cut
		p.mu.Unlock()
		if cut {
			_, _ = io.Copy(io.Discard, from)
			return
		}
		if err != nil {
			_ = to.Close()
			return
		}
		seen.read(buf[:n])
		if _, err = to.Write(buf[:n]); err != nil {
			_ = to.Close()
			return
		}
	}
}

func (n *Network) close() {
	_ = n.listener.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.paths {
		_ = p.ends[0].Close()
		_ = p.ends[1].Close()
	}
}
