package share

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// A tenant gets at most its share, and all tenants together at most the whole.
func TestPool(t *testing.T) {
	t.Parallel()
	p := NewPool(10, 6, "bytes", time.Second)
	require.NoError(t, p.Take("a", 6))
	err := p.Take("a", 1)
	assert.Equal(t, asyncflow.CodeRateLimited, asyncflow.CodeOf(err))
	assert.ErrorContains(t, err, "one tenant on this node is 6 bytes at once, and 6 are in use")
	require.NoError(t, p.Take("b", 4))
	err = p.Take("c", 1)
	assert.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err))
	assert.ErrorContains(t, err, "this node is 10 bytes at once, and 10 are in use")
	p.Give("a", 6)
	require.NoError(t, p.Take("c", 1))
	assert.Equal(t, 5, p.InUse())
}

// A loan gives back what it took, once.
func TestLoan(t *testing.T) {
	t.Parallel()
	p := NewPool(10, 6, "bytes", time.Second)
	l := p.Lend("a")
	require.NoError(t, l.Take(2))
	require.NoError(t, l.Take(4))
	require.Error(t, l.Take(1))
	assert.Equal(t, 6, p.InUse())
	l.End()
	l.End()
	assert.Zero(t, p.InUse())
	assert.Empty(t, p.by)
}
