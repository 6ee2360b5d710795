// Package repeats keeps a failure that goes on from filling the log: it writes the first line at
// once, and then one line a minute with a count.
package repeats

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// every is the time between two lines that say the same.
	every = time.Minute
	// flushEvery is how often Run looks for counts that are due.
	flushEvery = 5 * time.Second

	// maxKeys bounds the different lines that are known at a time. If there are more, lines with
	// the same message and tenant count as one, whatever their other attributes; and if there are
	// twice as many, all with the same message.
	maxKeys = 256
	// maxValue bounds each value that is kept of a line, and maxAttrs their number, for the line
	// with the count. Lines that are written at once are whole.
	maxValue = 512
	maxAttrs = 16

	// countKey is the attribute with the count.
	countKey = "repeated"
)

var (
	// ignored are the attributes that differ between lines about the same failure.
	ignored = map[string]bool{"request_id": true, "task": true, "seq": true, "attempt": true,
		"duration": true, "address": true, "method": true, "path": true,
		"status": true, "results": true}
	// worded are the attributes with numbers in them that differ, such as a port.
	worded = map[string]bool{"error": true, "panic": true, "reason": true}
)

// Handler is a slog.Handler that counts warnings and errors that say the same: those with the same
// message and the same attributes, but for the ones that are ignored, and for numbers in errors. It
// passes on all other lines, and all with a stack.
type Handler struct {
	next  slog.Handler
	with  string // the attributes of all lines
	lines *lines
}

// lines are the lines that were written within the last minute.
type lines struct {
	each []string // messages of lines that are never counted
	now  func() time.Time
	seed maphash.Seed

	mu    sync.Mutex
	known map[uint64]*line // by the hash of what they say
	ended bool             // nothing is counted any more
}

// line is a line that was written, and how many like it weren't.
type line struct {
	written time.Time
	count   int
	last    slog.Record  // the latest that was counted, with its values cut
	next    slog.Handler // of the latest
}

// New returns a Handler in front of another one. Lines with one of the messages each are all
// written.
func New(next slog.Handler, each ...string) *Handler {
	return &Handler{next: next, lines: &lines{each: each, now: time.Now, seed: maphash.MakeSeed(),
		known: map[uint64]*line{}}}
}

// Run writes the counts of lines that stop coming. At the end it writes all counts that are left.
func (h *Handler) Run(ctx context.Context) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			h.lines.end()
			return
		case <-tick.C:
			h.lines.flush(h.lines.now())
		}
	}
}

// end writes all counts that are left. From then on all lines are written.
func (l *lines) end() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.flush(l.now().Add(every))
}

// Enabled reports whether lines of a level are written.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// WithAttrs returns a Handler that adds attributes to its lines. It counts together with h.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var with strings.Builder
	with.WriteString(h.with)
	for _, a := range attrs {
		writeKey(&with, a)
	}
	return &Handler{next: h.next.WithAttrs(attrs), with: with.String(), lines: h.lines}
}

// WithGroup returns a Handler that puts attributes into a group. It counts together with h.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{next: h.next.WithGroup(name), with: h.with + name + "(", lines: h.lines}
}

// Handle writes a line, or counts it.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn || slices.Contains(h.lines.each, r.Message) || hasStack(r) {
		return h.next.Handle(ctx, r)
	}
	if count := h.lines.take(h, r); count > 1 {
		r = r.Clone()
		r.AddAttrs(slog.Int(countKey, count))
	} else if count == 0 {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// take returns for how many lines a line stands, itself included, if it is to be written now, or
// else 0.
func (l *lines) take(h *Handler, r slog.Record) int {
	key := maphash.String(l.seed, keyOf(h.with, r))
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return 1
	}
	known := l.known[key]
	if known == nil && len(l.known) >= maxKeys {
		general := r.Message
		if len(l.known) < 2*maxKeys {
			general += "\x00" + tenantOf(r)
		}
		key = maphash.String(l.seed, general)
		known = l.known[key]
	}
	switch {
	case known == nil:
		l.known[key] = &line{written: now}
		return 1
	case now.Sub(known.written) >= every:
		count := known.count + 1
		*known = line{written: now}
		return count
	}
	known.count++
	known.last, known.next = shorten(r), h.next
	return 0
}

// flush writes the counts of the lines that were last written a minute before now, and forgets
// lines without a count.
func (l *lines) flush(now time.Time) {
	l.mu.Lock()
	var due []line
	for key, known := range l.known {
		switch {
		case now.Sub(known.written) < every:
		case known.count == 0:
			delete(l.known, key)
		default:
			due = append(due, *known)
			*known = line{written: now}
		}
	}
	l.mu.Unlock()
	for _, known := range due {
		known.last.AddAttrs(slog.Int(countKey, known.count))
		// The line comes from Handle, which can tell nobody either.
		_ = known.next.Handle(context.Background(), known.last)
	}
}

// keyOf returns what is the same for all lines about the same failure.
func keyOf(with string, r slog.Record) string {
	var key strings.Builder
	key.WriteString(r.Level.String())
	key.WriteString(r.Message)
	key.WriteString(with)
	r.Attrs(func(a slog.Attr) bool {
		writeKey(&key, a)
		return true
	})
	return key.String()
}

// writeKey writes what an attribute says.
func writeKey(key *strings.Builder, a slog.Attr) {
	if ignored[a.Key] {
		return
	}
	key.WriteByte('\x00')
	key.WriteString(a.Key)
	key.WriteByte('=')
	text := textOf(a.Value)
	if worded[a.Key] {
		text = numbers.ReplaceAllString(text, "#")
	}
	key.WriteString(text)
}

var numbers = regexp.MustCompile(`[0-9]+`)

// tenantOf returns the tenant that a line is about, or "".
func tenantOf(r slog.Record) (tenant string) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "tenant" {
			tenant = textOf(a.Value)
		}
		return tenant == ""
	})
	return tenant
}

// hasStack reports whether the stack of a panic is in a line.
func hasStack(r slog.Record) (found bool) {
	r.Attrs(func(a slog.Attr) bool {
		found = a.Key == "stack"
		return !found
	})
	return found
}

// shorten returns a record to keep.
func shorten(r slog.Record) slog.Record {
	short := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		switch a.Value.Kind() {
		case slog.KindBool, slog.KindInt64, slog.KindUint64, slog.KindFloat64, slog.KindDuration,
			slog.KindTime:
		default:
			a.Value = slog.StringValue(textOf(a.Value))
		}
		short.AddAttrs(a)
		return short.NumAttrs() < maxAttrs
	})
	return short
}

// textOf returns the beginning of a value as text.
func textOf(v slog.Value) string {
	text := whole(v.Resolve())
	if len(text) > maxValue {
		return strings.ToValidUTF8(text[:maxValue], "") + "…"
	}
	return strings.Clone(text)
}

// whole returns a value as text. A value that can't say what it is, such as an error that is a nil
// pointer, is written as fmt does.
func whole(v slog.Value) (text string) {
	err, ok := v.Any().(error)
	if !ok {
		return v.String()
	}
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("%v", err)
		}
	}()
	return err.Error()
}
