package pgtest

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// hosts counts the hosts of this process.
var hosts atomic.Int32

// Host is a machine in front of a database: a network namespace of its own, with a network path
// from this one. It is a real one to TCP.
type Host struct {
	*Network
	t    testing.TB
	name string // of the namespace
	far  string // its address
}

// NewHost returns a host in front of the database at a URL, and its address and port. It skips the
// test where it can't make network namespaces: that takes root, and the commands ip and nft.
func NewHost(t testing.TB, rawURL string) (*Host, string) {
	t.Helper()
	for _, command := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(command); err != nil || os.Geteuid() != 0 {
			t.Skipf("NOT TESTED: a lost host. Network namespaces take root, ip and nft (%v)", err)
		}
	}
	n := int(hosts.Add(1))
	id := (os.Getpid()*16 + n) % (256 * 64) // a quarter of a /24 for each
	h := &Host{t: t, name: fmt.Sprintf("asyncflow-%d-%d", os.Getpid(), n)}
	address := func(last int) string {
		return fmt.Sprintf("10.213.%d.%d", id/64, id%64*4+last)
	}
	h.far = address(2)
	near, far := fmt.Sprintf("afn%d", id), fmt.Sprintf("aff%d", id)
	if out, err := exec.Command("ip", "netns", "add", h.name).CombinedOutput(); err != nil {
		t.Skipf("NOT TESTED: a lost host. ip netns add: %v: %s", err, out)
	}
	t.Cleanup(func() { h.run("ip", "netns", "del", h.name) }) // its links, too
	h.run("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", h.name)
	h.run("ip", "addr", "add", address(1)+"/30", "dev", near)
	h.run("ip", "link", "set", near, "up")
	h.run("ip", "-n", h.name, "addr", "add", h.far+"/30", "dev", far)
	h.run("ip", "-n", h.name, "link", "set", far, "up")
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	listener, err := h.listen()
	if err != nil {
		t.Fatalf("pgtest: listen on the host %s: %v", h.name, err)
	}
	h.Network = &Network{t: t, upstream: u.Host, listener: listener}
	t.Cleanup(h.Network.close)
	go h.Network.accept()
	return h, listener.Addr().String()
}

// listen opens a port in the namespace: a socket stays where it was made.
func (h *Host) listen() (l net.Listener, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with this goroutine
		var space *os.File
		if space, err = os.Open(filepath.Join("/run/netns", h.name)); err != nil {
			return
		}
		defer space.Close()
		if err = unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err != nil {
			return
		}
		l, err = net.Listen("tcp", net.JoinHostPort(h.far, "0"))
	}()
	<-done
	return l, err
}

// Lose drops all packets from and to the host from now on.
func (h *Host) Lose() {
	h.t.Helper()
	h.run("ip", "netns", "exec", h.name, "nft", strings.Join([]string{
		"add table inet lost",
		"add chain inet lost in { type filter hook input priority 0; policy drop; }",
		"add chain inet lost out { type filter hook output priority 0; policy drop; }",
	}, "; "))
}

func (h *Host) run(command ...string) {
	h.t.Helper()
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		h.t.Errorf("pgtest: %s: %v: %s", strings.Join(command, " "), err, out)
	}
}
