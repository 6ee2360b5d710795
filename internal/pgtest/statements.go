package pgtest

import (
	"bytes"
	"encoding/binary"
	"sync"
	"testing"
)

// Statements notes what runs over a network: the texts of the statements, in the order in which
// each connection sends them.
type Statements struct {
	mu  sync.Mutex
	all []string
}

// Noted returns a network in front of the database at a URL, the URL through that network, and the
// statements that run over it. The connections must not be encrypted.
func Noted(t testing.TB, rawURL string) (*Statements, string) {
	t.Helper()
	n, through := Behind(t, rawURL)
	s := &Statements{}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.noted = s
	return s, through
}

// During calls do and returns the statements that ran meanwhile, also by background work.
func (s *Statements) During(do func()) []string {
	s.mu.Lock()
	s.all = nil
	s.mu.Unlock()
	do()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

func (s *Statements) note(sql string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, sql)
}

// messages reads the messages of Postgres' protocol that one connection sends.
type messages struct {
	to       *Statements // nil: nobody asks
	rest     []byte      // the beginning of a message
	begun    bool        // the message that begins a session was sent: later ones bear a type
	prepared map[string]string
}

// The codes of messages that come before a session.
const (
	cancelRequest = 80877102
	sslRequest    = 80877103
	gssRequest    = 80877104
)

// read reads some bytes of the connection.
func (m *messages) read(some []byte) {
	if m.to == nil {
		return
	}
	m.rest = append(m.rest, some...)
	for {
		head := 4
		if m.begun {
			head = 5
		}
		if len(m.rest) < head {
			return
		}
		size := head - 4 + int(binary.BigEndian.Uint32(m.rest[head-4:]))
		if size < head || len(m.rest) < size {
			return
		}
		if body := m.rest[head:size]; m.begun {
			m.message(m.rest[0], body)
		} else {
			m.begin(body)
		}
		m.rest = m.rest[size:]
	}
}

// begin reads a message without a type.
func (m *messages) begin(body []byte) {
	switch binary.BigEndian.Uint32(body) {
	case cancelRequest, sslRequest, gssRequest:
	default:
		m.begun = true
		m.prepared = map[string]string{}
	}
}

// message reads a message: Query, Parse or Bind. A statement that is bound is also executed.
func (m *messages) message(kind byte, body []byte) {
	name, rest, _ := bytes.Cut(body, []byte{0})
	second, _, _ := bytes.Cut(rest, []byte{0})
	switch kind {
	case 'Q':
		m.to.note(string(name))
	case 'P':
		m.prepared[string(name)] = string(second)
	case 'B': // a portal, and then a statement
		m.to.note(m.prepared[string(second)])
	}
}
