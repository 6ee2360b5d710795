package store_test

import (
	"bufio"
	"encoding/binary"
	"io"
	"iter"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// line carries the connections of a node to Postgres, and cuts them at a statement: as if the node
// or its network had died there. Postgres ends the open transaction.
type line struct {
	server string
	l      net.Listener

	mu      sync.Mutex
	conns   map[net.Conn]bool
	left    int  // statements until the cut; 0: none is planned
	answers bool // the statement is run, but its answer is lost
	node    bool // the whole node dies; otherwise only that connection
	cut     bool // it happened
	died    bool // it happened in this round of deaths
	ended   bool // the statement with the lost answer in this round ended its transaction
}

// newLine returns a line, and the URL of a database over it.
func newLine(t *testing.T, database string) (*line, string) {
	t.Helper()
	u, err := url.Parse(database)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := &line{server: u.Host, l: l, conns: map[net.Conn]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { n.carry(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		n.cutAll()
		waitAll(t, &running)
	})
	u.Host = l.Addr().String()
	q := u.Query()
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	return n, u.String()
}

// arm plans a cut at the n-th statement from now on.
func (n *line) arm(statement int, answers, node bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.left, n.answers, n.node, n.cut = statement, answers, node, false
}

// mend ends the plan, and reports whether the line was cut.
func (n *line) mend() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	cut := n.cut
	n.left, n.cut = 0, false
	return cut
}

// sent returns how many statements were sent since the plan was made for the millionth.
func (n *line) sent() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return 1_000_000 - n.left
}

func (n *line) cutAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for conn := range n.conns {
		_ = conn.Close()
	}
	clear(n.conns)
}

// deaths yields rounds of a test; in each a node dies at a statement that the round arms. First the
// statement is run, and its answer is lost: at the first statement, the second and so on, until the
// node outlives a round, which comes after least others. Then the statement isn't run. Within a
// transaction that makes no difference, as the death rolls it back: in the short form only the
// statements that ended a transaction are tried again.
func (n *line) deaths(t *testing.T, least int) iter.Seq2[int, bool] {
	return func(yield func(at int, lost bool) bool) {
		var ends []int
		for at := 1; ; at++ {
			n.begin()
			if !yield(at, true) {
				return
			}
			died, ended := n.outcome()
			if !died {
				require.Greater(t, at, least)
				break
			}
			if ended || longform.Asked() {
				ends = append(ends, at)
			}
		}
		require.NotEmpty(t, ends, "no statement ended a transaction")
		for _, at := range ends {
			if !yield(at, false) {
				return
			}
		}
	}
}

// begin begins a round.
func (n *line) begin() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.died, n.ended = false, false
}

// outcome reports whether the node died in this round, and whether the statement at which it died
// ended its transaction.
func (n *line) outcome() (died, ended bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.died, n.ended
}

// dead reports whether the node is dead.
func (n *line) dead() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut && n.node
}

// counts counts a statement. It reports whether the connection is cut at it, and whether the
// statement is run nonetheless.
func (n *line) counts() (cut, run bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.left == 0 {
		return false, true
	}
	n.left--
	n.cut = n.left == 0
	n.died = n.died || n.cut
	return n.cut, !n.cut || n.answers
}

// carry carries one connection.
func (n *line) carry(node net.Conn) {
	defer node.Close()
	if n.dead() {
		return
	}
	server, err := net.Dial("tcp", n.server)
	if err != nil {
		return
	}
	defer server.Close()
	n.mu.Lock()
	n.conns[node], n.conns[server] = true, true
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.conns, node)
		delete(n.conns, server)
	}()
	deaf := make(chan struct{}) // closed when answers are lost
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.answer(node, server, deaf)
		_ = node.Close()
		_ = server.Close()
	}()
	runs := n.ask(node, server, deaf)
	if !runs {
		_ = server.Close()
	}
	<-done
	if n.dead() {
		n.cutAll()
	}
}

// ask carries messages to the server until the line is cut. It reports whether the last statement
// is still to be run.
func (n *line) ask(node, server net.Conn, deaf chan struct{}) (runs bool) {
	from := bufio.NewReader(node)
	if copyMessage(server, from, true) != nil {
		return false
	}
	lost := false
	for {
		kind, err := from.Peek(1)
		if err != nil {
			return lost
		}
		if (kind[0] == 'E' || kind[0] == 'Q') && !lost {
			cut, run := n.counts()
			if cut && !run {
				return false
			}
			if lost = cut; lost {
				close(deaf)
			}
		}
		if copyMessage(server, from, false) != nil {
			return lost
		}
	}
}

// answer carries messages of the server. Once it is deaf, it ends with the end of a transaction or
// a statement, which it doesn't pass on.
func (n *line) answer(node, server net.Conn, deaf chan struct{}) {
	from := bufio.NewReader(server)
	for {
		kind, err := from.Peek(1)
		if err != nil {
			return
		}
		to, lost := io.Writer(node), false
		select {
		case <-deaf:
			to, lost = io.Discard, true
		default:
		}
		last := lost && kind[0] == 'Z'
		if last {
			n.noteEnd(from)
		}
		if copyMessage(to, from, false) != nil || last {
			return
		}
	}
}

// noteEnd notes whether a statement ended its transaction, by the state that the server names next.
func (n *line) noteEnd(from *bufio.Reader) {
	state, err := from.Peek(6)
	if err != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = n.ended || state[5] == 'I'
}

// copyMessage carries one message; the first one of a connection is without a kind.
func copyMessage(to io.Writer, from *bufio.Reader, first bool) error {
	n := 5
	if first {
		n = 4
	}
	head, err := from.Peek(n)
	if err != nil {
		return err
	}
	size := int64(binary.BigEndian.Uint32(head[n-4:])) + int64(n-4)
	_, err = io.CopyN(to, from, size)
	return err
}

// mortal returns a node with a line that can be cut. It follows nothing up by itself.
func mortal(t *testing.T, b *bundle) (*bundle, *line) {
	t.Helper()
	n, address := newLine(t, b.url)
	s, err := store.Open(t.Context(),
		store.Config{URL: address, Node: "mortal", Pool: 2, HotPool: 2,
			NoRoles: pgtest.NoRoles()})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	node := &bundle{Store: s, t: t, url: address, db: b.db}
	node.byHand()
	return node, n
}

// nodePair is a node that lives, and one that may lose its connections or die at any statement.
type nodePair struct {
	b, mortal *bundle
	line      *line
}

func newNodePair(t *testing.T, b *bundle) nodePair {
	mortal, line := mortal(t, b)
	return nodePair{b, mortal, line}
}

// node returns a node. It may be one that loses a connection at a statement; then it tries again.
// end ends the fault.
func (p nodePair) node(t *rapid.T) (b *bundle, end func()) {
	if rapid.IntRange(0, 9).Draw(t, "connection is lost") > 0 {
		return p.b, func() {}
	}
	// As a report does whose task is in a later roll than the node knows: nobody runs this node.
	require.NoError(t, p.mortal.Catalog.RefreshTenant(p.mortal.t.Context(), tenant))
	p.line.arm(rapid.IntRange(1, 12).Draw(t, "at statement"), rapid.Bool().Draw(t, "answer lost"),
		false)
	return p.mortal, func() { p.line.mend() }
}
