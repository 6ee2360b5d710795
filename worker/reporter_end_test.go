package worker

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// nobody is a transport to an asyncflow that is away. It records the times of the tries.
type nobody struct {
	mu    sync.Mutex
	tries map[string][]time.Time // by verb
}

func (n *nobody) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	verb := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	n.tries[verb] = append(n.tries[verb], time.Now())
	return nil, errors.New("connection refused")
}

// While asyncflow is away, the report is sent with growing pauses, until a minute after the
// deadline. Then the worker gives up, and frees the capacity. The test's clock is synthetic.
func TestReportsEndAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := &nobody{tries: map[string][]time.Time{}}
		w, err := New(Config{Keys: []string{secret}, Transport: away, AnswerWithin: -1,
			MaxInFlight: 1})
		require.NoError(t, err)
		Handle(w, "images", "inspect", func(context.Context, Task[photo]) (picture, error) {
			return picture{5}, nil
		})
		deadline := time.Now().Add(10 * time.Minute)
		deliver := func() int {
			m := signed(t, map[string]any{
				"task_id": "images.1.42", "type": "images", "stage": "inspect", "attempt": 1,
				"max_attempts": 20, "seq": 1,
				"deadline": deadline.Format(time.RFC3339Nano), "context": map[string]any{},
				"callback": map[string]any{"url": "http://tasks.example.com/v1/callbacks/images.1.42",
					"token": token},
			})
			r := httptest.NewRequest(m.method, "/", bytes.NewReader(m.body))
			r.Header = m.header
			answer := httptest.NewRecorder()
			w.ServeHTTP(answer, r)
			return answer.Code
		}
		require.Equal(t, 202, deliver())
		require.Equal(t, 503, deliver())
		require.NoError(t, w.Close(t.Context()))

		gaveUp := time.Now()
		require.Equal(t, deadline.Add(lateReports), gaveUp)
		tries := away.tries["complete"]
		require.Greater(t, len(tries), 20)
		for i, at := range tries[1:] {
			pause := at.Sub(tries[i])
			require.LessOrEqual(t, pause, reportMaxWait)
			require.GreaterOrEqual(t, pause, min(reportMinWait<<min(i, 10), reportMaxWait)/2,
				"it grows")
		}
		require.Less(t, gaveUp.Sub(tries[len(tries)-1]), reportMaxWait)
		require.NotEmpty(t, away.tries["heartbeat"])
	})
}
