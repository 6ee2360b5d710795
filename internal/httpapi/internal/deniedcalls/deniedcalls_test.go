package httpapi

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

// book is what was written.
type book struct {
	acts []*store.Act
	err  error
}

func (b *book) write(_ context.Context, acts []*store.Act) error {
	if b.err == nil {
		b.acts = append(b.acts, acts...)
	}
	return b.err
}

func (b *book) calls() (sum int64) {
	for _, a := range b.acts {
		sum += a.Calls
	}
	return sum
}

func newTestDenied() (*deniedCalls, *book, *time.Time) {
	b, now := &book{}, time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	return newDeniedCalls(b.write, func() time.Time { return now }, slog.New(slog.DiscardHandler)), b, &now
}

func described(address string) func() asyncflow.AuditEntry {
	return func() asyncflow.AuditEntry { return asyncflow.AuditEntry{Address: address, Action: "a.b"} }
}

// The first call of a kind is written soon, the others of its minute together.
func TestDeniedMinute(t *testing.T) {
	t.Parallel()
	d, b, now := newTestDenied()
	start := *now
	d.note(deniedKey{address: "x"}, described("x"))
	d.flush(false)
	require.Len(t, b.acts, 1)
	for range 99 {
		*now = now.Add(100 * time.Millisecond)
		d.note(deniedKey{address: "x"}, described("other"))
		d.flush(false)
	}
	require.Len(t, b.acts, 1)
	*now = start.Add(deniedWindow)
	d.flush(false)
	require.Len(t, b.acts, 2)
	rest := b.acts[1]
	assert.Equal(t, []any{int64(99), "x", start.Add(100 * time.Millisecond), start.Add(9900 * time.Millisecond)}, []any{rest.Calls, rest.Address, rest.At, rest.LastAt})
	d.note(deniedKey{address: "x"}, described("x"))
	d.flush(false)
	require.Len(t, b.acts, 3, "a new minute")
	assert.Zero(t, b.acts[2].LastAt)
	d.flush(true)
	require.Len(t, b.acts, 3)
}

// Whatever comes from however many addresses, an hour has its bound, and no call is
// uncounted.
func TestDeniedFlood(t *testing.T) {
	t.Parallel()
	d, b, now := newTestDenied()
	const perMinute = 10_000
	for minute := range 60 {
		for i := range perMinute {
			d.note(deniedKey{address: fmt.Sprint(minute, i)}, described(fmt.Sprint(minute, i)))
		}
		d.flush(false)
		require.LessOrEqual(t, len(d.kinds), deniedKinds+1)
		*now = now.Add(time.Minute)
		d.flush(false)
	}
	assert.LessOrEqual(t, len(b.acts), 2*deniedKinds+60)
	assert.EqualValues(t, 60*perMinute, b.calls())
	last := b.acts[len(b.acts)-1]
	assert.Equal(t, []any{asyncflow.AuditAny, int64(perMinute), ""}, []any{last.Action, last.Calls, last.Address})
	d.note(deniedKey{address: "later"}, described("later"))
	d.flush(false)
	assert.Equal(t, "later", b.acts[len(b.acts)-1].Address, "in the next hour kinds are told apart again")
}

// A database that is away for a while loses nothing, and takes no memory without end.
func TestDeniedWithoutDatabase(t *testing.T) {
	t.Parallel()
	d, b, now := newTestDenied()
	b.err = errors.New("no database")
	for i := range 3 {
		d.note(deniedKey{address: fmt.Sprint(i)}, described("x"))
		d.flush(false)
	}
	require.Len(t, d.pending, 3)
	b.err = nil
	d.flush(false)
	require.EqualValues(t, 3, b.calls())
	b.err = errors.New("no database")
	for range 10 * deniedPending {
		*now = now.Add(2 * time.Minute)
		d.note(deniedKey{address: "x"}, described("x"))
		d.flush(false)
	}
	require.LessOrEqual(t, len(d.pending), deniedPending)
}
