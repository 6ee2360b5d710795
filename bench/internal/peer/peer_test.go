package peer

import (
	"bufio"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFlags(t *testing.T) {
	t.Parallel()
	for _, f := range []Flags{
		{Database: "postgres://x", Jobs: 7},
		{Database: "postgres://x", Jobs: 7, URL: "http://y"},
		{Database: "postgres://x", Jobs: 7, Singly: true, Kinds: 9, Skewed: true},
		{Database: "postgres://x", Jobs: 7, Rate: 0.5, Kinds: 9},
	} {
		t.Run(strings.Join(f.Args(), " "), func(t *testing.T) {
			got, err := ParseFlags("a", f.Args())
			require.NoError(t, err)
			assert.Equal(t, f, got)
		})
	}
}

func TestProtocol(t *testing.T) {
	t.Parallel()
	lines := func(text string) *bufio.Reader { return bufio.NewReader(strings.NewReader(text)) }
	output := lines("ready\n" + `{"seconds":2,"p50_ms":3,"p99_ms":4}` + "\n")
	require.NoError(t, AwaitReady(output))
	var input strings.Builder
	r, err := Begin(&input, output)
	require.NoError(t, err)
	assert.Equal(t, Result{Seconds: 2, P50: 3, P99: 4}, r)
	assert.Equal(t, "go\n", input.String())

	assert.ErrorContains(t, AwaitReady(lines("no\n")), "it is not ready")
	_, err = Begin(&input, lines(""))
	assert.ErrorContains(t, err, "it has reported no result")
	_, err = Begin(&input, lines("{\n"))
	assert.Error(t, err)
}
