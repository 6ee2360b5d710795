package deniedcalls

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// book keeps the entries that were written.
type book struct {
	calls []*store.AuditedCall
	err   error
}

func (b *book) write(_ context.Context, calls []*store.AuditedCall) error {
	if b.err == nil {
		b.calls = append(b.calls, calls...)
	}
	return b.err
}

func (b *book) count() (sum int64) {
	for _, a := range b.calls {
		sum += a.Calls
	}
	return sum
}

func newCounter() (*Counter, *book, *time.Time) {
	b, now := &book{}, time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	return New(b.write, func() time.Time { return now }, slog.New(slog.DiscardHandler)), b, &now
}

func described(address string) func() asyncflow.AuditEntry {
	return func() asyncflow.AuditEntry {
		return asyncflow.AuditEntry{Address: address,
			Action: "a.b"}
	}
}

// The first call of a kind is written soon, the others of its window together.
func TestMinute(t *testing.T) {
	t.Parallel()
	c, b, now := newCounter()
	start := *now
	c.Count(Key{Address: "x"}, described("x"))
	c.flush(false)
	require.Len(t, b.calls, 1)
	for range 99 {
		*now = now.Add(100 * time.Millisecond)
		c.Count(Key{Address: "x"}, described("other"))
		c.flush(false)
	}
	require.Len(t, b.calls, 1)
	*now = start.Add(window)
	c.flush(false)
	require.Len(t, b.calls, 2)
	rest := b.calls[1]
	assert.Equal(t, []any{int64(99), "x", start.Add(100 * time.Millisecond),
		start.Add(9900 * time.Millisecond)}, []any{rest.Calls, rest.Address, rest.At, rest.LastAt})
	c.Count(Key{Address: "x"}, described("x"))
	c.flush(false)
	require.Len(t, b.calls, 3, "a new minute")
	assert.Zero(t, b.calls[2].LastAt)
	c.Flush()
	require.Len(t, b.calls, 3)
}

// Calls from any number of addresses make a bounded number of entries per hour, and every call is
// counted.
func TestFlood(t *testing.T) {
	t.Parallel()
	c, b, now := newCounter()
	const perMinute = 10_000
	for minute := range 60 {
		for i := range perMinute {
			c.Count(Key{Address: fmt.Sprint(minute, i)}, described(fmt.Sprint(minute, i)))
		}
		c.flush(false)
		require.LessOrEqual(t, len(c.budgets[""].kinds), maxKinds+1)
		*now = now.Add(time.Minute)
		c.flush(false)
	}
	assert.LessOrEqual(t, len(b.calls), 2*maxKinds+60)
	assert.EqualValues(t, 60*perMinute, b.count())
	last := b.calls[len(b.calls)-1]
	assert.Equal(t, []any{asyncflow.AuditAny, int64(perMinute), ""},
		[]any{last.Action, last.Calls, last.Address})
	c.Count(Key{Address: "later"}, described("later"))
	c.flush(false)
	assert.Equal(t, "later", b.calls[len(b.calls)-1].Address,
		"in the next hour kinds are told apart again")
}

// A flood of one budget leaves the kinds of others as they are, and doesn't keep their entries from
// being written. What is over is forgotten.
func TestBudgets(t *testing.T) {
	t.Parallel()
	c, b, now := newCounter()
	for i := range 10 * maxKinds {
		c.Count(Key{Address: fmt.Sprint(i)}, described("flood"))
		c.Count(Key{Budget: "acme", Schema: "acme", Address: fmt.Sprint(i)}, described("acme's"))
	}
	c.Count(Key{Budget: "other", Schema: "other", Address: "x"}, described("other's"))
	c.Flush()
	by := map[string]int64{}
	for _, a := range b.calls {
		by[a.Schema+" "+a.Action+" "+a.Address] += a.Calls
	}
	assert.Equal(t, map[string]int64{
		" a.b flood":                       maxKinds,
		" " + asyncflow.AuditAny + " ":     9 * maxKinds,
		"acme a.b acme's":                  maxKinds,
		"acme " + asyncflow.AuditAny + " ": 9 * maxKinds,
		"other a.b other's":                1,
	}, by)
	*now = now.Add(2 * time.Hour)
	c.flush(false)
	assert.Empty(t, c.budgets)
	assert.Zero(t, c.pending)
}

// A tenant with an audit that takes no entries keeps nobody else's waiting.
func TestBudgetThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	var written []string
	c := New(func(_ context.Context, calls []*store.AuditedCall) error {
		if calls[0].Schema == "locked" {
			return errors.New("it is locked")
		}
		for _, a := range calls {
			written = append(written, a.Schema)
		}
		return nil
	}, time.Now, slog.New(slog.DiscardHandler))
	for _, schema := range []string{"locked", "", "acme"} {
		c.Count(Key{Budget: schema, Schema: schema}, described("x"))
	}
	c.Flush()
	assert.ElementsMatch(t, []string{"", "acme"}, written)
	assert.Equal(t, 1, c.pending)
}

// While the database is down, no entry is lost up to a limit, and memory is bounded.
func TestWithoutDatabase(t *testing.T) {
	t.Parallel()
	c, b, now := newCounter()
	b.err = errors.New("no database")
	for i := range 3 {
		c.Count(Key{Address: fmt.Sprint(i)}, described("x"))
		c.flush(false)
	}
	require.Equal(t, 3, c.pending)
	b.err = nil
	c.flush(false)
	require.EqualValues(t, 3, b.count())
	b.err = errors.New("no database")
	for range 10 * maxPending {
		*now = now.Add(2 * time.Minute)
		c.Count(Key{Address: "x"}, described("x"))
		c.flush(false)
	}
	require.LessOrEqual(t, c.pending, maxPending)
}

// An entry that the database takes late bears the time of the write, as exports are over its own.
func TestLateEntryHasTheTimeOfItsWrite(t *testing.T) {
	t.Parallel()
	c, b, now := newCounter()
	start := *now
	c.Count(Key{Address: "x"}, described("x"))
	b.err = errors.New("not now")
	for range 3 {
		*now = now.Add(2 * time.Minute)
		c.flush(false)
	}
	b.err = nil
	*now = now.Add(time.Minute)
	c.flush(false)
	require.Len(t, b.calls, 1)
	e := b.calls[0]
	assert.Equal(t, *now, e.At)
	assert.True(t, e.LastAt.IsZero())
	first := start.Format(time.RFC3339Nano)
	assert.Equal(t, map[string]any{"first_at": first, "last_at": first}, e.Detail)
}
