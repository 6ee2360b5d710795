package repeats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bundle is a log with a clock that stands still.
type bundle struct {
	*slog.Logger
	handler *Handler
	text    bytes.Buffer
	now     time.Time
}

func setup() *bundle {
	b := &bundle{now: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)}
	b.handler = New(slog.NewTextHandler(&b.text, &slog.HandlerOptions{
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 {
				return slog.Attr{}
			}
			return a
		}}), "attempt")
	b.handler.lines.now = func() time.Time { return b.now }
	b.Logger = slog.New(b.handler)
	return b
}

// written returns the lines since the last call.
func (b *bundle) written() []string {
	defer b.text.Reset()
	return strings.Split(strings.TrimSuffix(b.text.String(), "\n"), "\n")
}

// away logs that the database is away: each time from another port.
func (b *bundle) away(tenant string, port int) {
	b.Warn("lease failed, trying again", "tenant", tenant, "error",
		fmt.Errorf("dial tcp 10.0.0.1:%d: refused", port))
}

// A failure that goes on is one line, and then one line a minute with a count.
func TestRepeatedLinesBecomeOne(t *testing.T) {
	t.Parallel()
	b := setup()
	for port := range 100 {
		b.away("acme", port)
	}
	require.Equal(t, []string{`level=WARN msg="lease failed, trying again" tenant=acme ` +
		`error="dial tcp 10.0.0.1:0: refused"`}, b.written())

	b.now = b.now.Add(every)
	b.away("acme", 100)
	require.Equal(t, []string{`level=WARN msg="lease failed, trying again" tenant=acme ` +
		`error="dial tcp 10.0.0.1:100: refused" repeated=100`}, b.written())

	b.away("acme", 101)
	b.away("acme", 102)
	b.now = b.now.Add(every)
	b.handler.lines.flush(b.now)
	require.Equal(t, []string{`level=WARN msg="lease failed, trying again" tenant=acme ` +
		`error="dial tcp 10.0.0.1:102: refused" repeated=2`}, b.written(),
		"also if no other one comes")

	b.now = b.now.Add(every)
	b.handler.lines.flush(b.now)
	require.Equal(t, []string{""}, b.written())
	require.Empty(t, b.handler.lines.known, "what is over is forgotten")
	b.away("acme", 103)
	require.Len(t, b.written(), 1)
}

// Other failures, information, and the lines that are never counted are written at once.
func TestOtherLinesAreWritten(t *testing.T) {
	t.Parallel()
	b := setup()
	b.away("acme1", 1)
	b.away("acme2", 1)
	b.Warn("lease failed, trying again", "tenant", "acme1", "error", errors.New("no space left"))
	b.Error("lease failed, trying again", "tenant", "acme1", "error", errors.New("no space left"))
	b.With("issuer", "one").Warn("keys can't be read")
	b.With("issuer", "two").Warn("keys can't be read")
	b.WithGroup("one").Warn("keys can't be read")
	require.Len(t, b.written(), 7)
	for range 3 {
		b.Info("asyncflow is ready")
		b.Warn("attempt", "error", "500")
	}
	require.Len(t, b.written(), 6)
	b.With("issuer", "one").Warn("keys can't be read")
	require.Equal(t, []string{""}, b.written())
	b.now = b.now.Add(every)
	b.handler.lines.flush(b.now)
	require.Equal(t, []string{`level=WARN msg="keys can't be read" issuer=one repeated=1`},
		b.written())
}

// What differs between two lines about one failure doesn't count.
func TestRequestsOfOneFailureAreOneLine(t *testing.T) {
	t.Parallel()
	b := setup()
	for _, id := range []string{"a", "b", "c"} {
		b.Error("request failed", "request_id", id, "path", "/v1/tasks/"+id, "error", "away")
	}
	require.Len(t, b.written(), 1)
	b.now = b.now.Add(every)
	b.handler.lines.flush(b.now)
	require.Equal(t, []string{`level=ERROR msg="request failed" request_id=c path=/v1/tasks/c ` +
		`error=away repeated=2`}, b.written(), "the last one is named")
	for range 2 {
		b.Error("request failed", "error", "panic", "stack", "main.f()")
	}
	require.Len(t, b.written(), 2, "each stack is written")
}

// Names and errors that others choose use up neither memory nor the log.
func TestLinesAreBounded(t *testing.T) {
	t.Parallel()
	b := setup()
	long := strings.Repeat("x", 1<<14)
	for i := range 10 * maxKeys {
		for range 2 {
			b.Warn("no", "tenant", fmt.Sprint("t", i), "error", errors.New(long))
		}
	}
	require.Len(t, b.handler.lines.known, 2*maxKeys+1)
	require.Len(t, b.written(), 2*maxKeys+1, "later ones count by their message")
	kept := 0
	for _, known := range b.handler.lines.known {
		known.last.Attrs(func(a slog.Attr) bool {
			kept += len(a.Value.String())
			return true
		})
	}
	require.Less(t, kept, (2*maxKeys+1)*2*(maxValue+3))
	many := slog.NewRecord(b.now, slog.LevelWarn, "many", 0)
	for i := range 100 {
		many.AddAttrs(slog.Int(fmt.Sprint("a", i), i))
	}
	short := shorten(many)
	require.Equal(t, maxAttrs, short.NumAttrs())

	b.away("other", 1)
	b.away("other", 2)
	require.Len(t, b.written(), 1, "another message is still written at once")
	b.now = b.now.Add(every)
	b.handler.lines.flush(b.now)
	b.written()
	b.now = b.now.Add(every)
	b.handler.lines.flush(b.now)
	require.Empty(t, b.handler.lines.known)
}

// A tenant with many different lines doesn't hide the first line of another one.
func TestATenantsLinesHideNoOther(t *testing.T) {
	t.Parallel()
	b := setup()
	for i := range 10 * maxKeys {
		b.Warn("no", "tenant", "loud", "endpoint", i)
	}
	b.written()
	b.Warn("no", "tenant", "quiet", "endpoint", 1)
	require.Equal(t, []string{"level=WARN msg=no tenant=quiet endpoint=1"}, b.written())
}

// At its end, Run writes the counts that are left.
func TestRunWritesTheRest(t *testing.T) {
	t.Parallel()
	b := setup()
	b.away("acme", 1)
	b.away("acme", 2)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	b.handler.Run(ended)
	lines := b.written()
	require.Len(t, lines, 2)
	assert.Contains(t, lines[1], " repeated=1")
	for range 3 {
		b.away("acme", 1)
	}
	require.Len(t, b.written(), 3, "nobody would write a count any more")
}

// nilError is an error that a nil pointer of it can't tell.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// An error that panics when it is asked for its text does no harm.
func TestErrorThatPanics(t *testing.T) {
	t.Parallel()
	b := setup()
	for range 2 {
		b.Warn("no", "error", (*nilError)(nil))
	}
	require.Equal(t, []string{"level=WARN msg=no error=<nil>"}, b.written())
}
