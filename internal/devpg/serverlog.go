//go:build linux || darwin

package devpg

import (
	"io"
	"os"
	"strings"
	"sync"
)

const (
	tailBytes = 4096 // bytes at the end of a log that are read
	tailLines = 8    // of these, lines that an error shows
)

// serverLog is the destination of a server's log; error messages show the end of it. The server
// writes to a file directly, so that it can still do so when this process is gone.
type serverLog struct {
	out  io.Writer
	file *os.File // when out is a file of ours
	from int64    // where this server's part of the file begins
	ring *ring    // when out is the caller's
}

// openLog returns a log to w, or to the named file if w is nil.
func openLog(w io.Writer, name string) (*serverLog, error) {
	if w != nil {
		r := &ring{}
		return &serverLog{out: io.MultiWriter(r, w), ring: r}, nil
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &serverLog{out: f, file: f, from: info.Size()}, nil
}

// tail returns the last lines that the server wrote.
func (l *serverLog) tail() string {
	if l.ring != nil {
		return lastLines(l.ring.bytes())
	}
	info, err := l.file.Stat()
	if err != nil {
		return ""
	}
	start := max(l.from, info.Size()-tailBytes)
	text := make([]byte, max(info.Size()-start, 0))
	n, _ := l.file.ReadAt(text, start)
	return lastLines(text[:n])
}

func (l *serverLog) close() {
	if l.file != nil {
		_ = l.file.Close()
	}
}

// lastLines returns the last lines of a text as one line, for an error message.
func lastLines(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, " | ")
}

// ring keeps the last bytes written to it.
type ring struct {
	mu  sync.Mutex
	buf []byte
}

func (r *ring) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.buf = append(r.buf, p...)
	r.buf = append([]byte(nil), r.buf[max(0, len(r.buf)-tailBytes):]...)
	return len(p), nil
}

func (r *ring) bytes() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]byte(nil), r.buf...)
}
