package worker

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// A worker names itself in its answers and reports: by its host, unless it is told otherwise.
func TestName(t *testing.T) {
	host, err := os.Hostname()
	require.NoError(t, err)
	for name, want := range map[string]string{
		"":         asyncflow.WorkerName(host[:min(len(host), asyncflow.MaxWorkerName)]),
		"worker-7": "worker-7",
		NoName:     "",
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, func(c *Config) { c.Name = name })
			b.inspects(func(_ context.Context, task Task[photo]) (picture, error) {
				return picture{}, task.Progress(context.Background(), 50, "")
			})
			r := b.deliver(`{"image": "harbour.jpg"}`)
			require.Equal(t, 200, r.status)
			require.Equal(t, want, r.header.Get(asyncflow.WorkerHeader))
			require.Equal(t, want, (<-b.asyncflow.reports).worker)

			m := signed(t, b.envelope(`{}`))
			m.header.Del("webhook-signature")
			r = b.post(m)
			require.Equal(t, 401, r.status)
			require.Empty(t, r.header.Get(asyncflow.WorkerHeader), "strangers don't learn it")
		})
	}
}

func TestBadName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"two words", strings.Repeat("w", 65), "größe", "a\nb"} {
		_, err := New(Config{Name: name})
		require.ErrorContains(t, err, "Name", "%q", name)
		require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
		require.Empty(t, NewReporter(nil).Named(name).name)
	}
}
