package callbacks

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
)

// nameServer is a DNS server with answers that may change from query to query.
type nameServer struct {
	conn net.PacketConn

	mu sync.Mutex
	// by name in lower case: for the first query, the second, …; the last one stays
	zones   map[string][]zone
	unknown *zone          // of any other name; nil: there is none
	queries map[string]int // by name and type
}

// zone is what a name resolves to: addresses, and an alias if there is one.
type zone struct {
	alias     string
	addresses []netip.Addr
}

// newNameServer starts a server on the loopback.
func newNameServer(t *testing.T) *nameServer {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &nameServer{conn: conn, zones: map[string][]zone{}, queries: map[string]int{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.serve()
	}()
	t.Cleanup(func() {
		conn.Close()
		<-done
	})
	return s
}

// resolver returns a resolver that asks this server only.
func (s *nameServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "udp", s.conn.LocalAddr().String())
		}}
}

// setOthers sets what unknown names resolve to.
func (s *nameServer) setOthers(addresses ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unknown = &zone{}
	for _, a := range addresses {
		s.unknown.addresses = append(s.unknown.addresses, netip.MustParseAddr(a))
	}
}

// set sets what a name resolves to, for each query in turn: "93.184.216.34,::1" or, through an
// alias, "db.internal=10.0.0.1".
func (s *nameServer) set(name string, turns ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	zones := make([]zone, len(turns))
	for i, turn := range turns {
		alias, list, found := strings.Cut(turn, "=")
		if !found {
			alias, list = "", turn
		}
		zones[i].alias = alias
		for text := range strings.SplitSeq(list, ",") {
			zones[i].addresses = append(zones[i].addresses, netip.MustParseAddr(text))
		}
	}
	s.zones[strings.ToLower(name)] = zones
}

func (s *nameServer) serve() {
	buffer := make([]byte, 1500)
	for {
		n, from, err := s.conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		if reply, err := s.answer(buffer[:n]); err == nil {
			s.conn.WriteTo(reply, from)
		}
	}
}

func (s *nameServer) answer(query []byte) ([]byte, error) {
	var p dnsmessage.Parser
	header, err := p.Start(query)
	if err != nil {
		return nil, err
	}
	question, err := p.Question()
	if err != nil {
		return nil, err
	}
	z, known := s.next(question)
	header.Response, header.RecursionAvailable, header.Authoritative = true, true, true
	if !known {
		header.RCode = dnsmessage.RCodeNameError
	}
	m := dnsmessage.Message{Header: header, Questions: []dnsmessage.Question{question}}
	owner := question.Name
	if z.alias != "" {
		owner = dnsmessage.MustNewName(z.alias + ".")
		m.Answers = append(m.Answers,
			record(question.Name, dnsmessage.TypeCNAME, &dnsmessage.CNAMEResource{CNAME: owner}))
	}
	for _, a := range z.addresses {
		switch {
		case question.Type == dnsmessage.TypeA && a.Is4():
			m.Answers = append(m.Answers,
				record(owner, question.Type, &dnsmessage.AResource{A: a.As4()}))
		case question.Type == dnsmessage.TypeAAAA && a.Is6():
			m.Answers = append(m.Answers,
				record(owner, question.Type, &dnsmessage.AAAAResource{AAAA: a.As16()}))
		}
	}
	return m.Pack()
}

// next returns what a name resolves to for the next query.
func (s *nameServer) next(q dnsmessage.Question) (zone, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	turns, known := s.zones[name]
	if !known {
		if s.unknown == nil {
			return zone{}, false
		}
		return *s.unknown, true
	}
	at := min(s.queries[name+q.Type.String()], len(turns)-1)
	s.queries[name+q.Type.String()]++
	return turns[at], true
}

// asked returns how often the A records of a name were looked up.
func (s *nameServer) asked(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queries[name+dnsmessage.TypeA.String()]
}

// record returns a record that must not be cached: its time to live is 0.
func record(
	name dnsmessage.Name, kind dnsmessage.Type, body dnsmessage.ResourceBody,
) dnsmessage.Resource {
	return dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: name, Type: kind,
		Class: dnsmessage.ClassINET}, Body: body}
}
