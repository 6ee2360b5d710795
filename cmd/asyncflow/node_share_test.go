package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
)

// In the tests below, 32 tasks of a type may be in flight on a node, four fifths of its slots, and
// a worker takes shareDelay: a node does at most 160 tasks a second.
const (
	shareSlots = 40
	shareDelay = 200 * time.Millisecond
	shareRate  = float64(time.Second) / float64(shareDelay) * shareSlots * 4 / 5
)

// sharers are a node that takes all submits, and nodes that only dispatch.
type sharers struct {
	*testing.T
	api   *process
	rest  []*process
	began time.Time

	mu    sync.Mutex
	tasks map[string][]time.Duration // from submit to delivery, by the node that delivered
}

func startSharers(t *testing.T, rest int) *sharers {
	t.Helper()
	s := &sharers{T: t, began: time.Now(), tasks: map[string][]time.Duration{}}
	url := database(t)
	serve := func(name string, args ...string) *process {
		return startNode(t, url, append(args, fmt.Sprintf("--concurrency=%d", shareSlots),
			"--public-url=http://"+name)...)
	}
	for i := range rest { // first, so that the other one knows of them from its start
		s.rest = append(s.rest, serve(fmt.Sprintf("rest%d", i), "--roles=dispatcher"))
	}
	s.api = serve("api")
	w := startWorker(t, func(_ http.ResponseWriter, r *http.Request, d delivery) {
		var sent time.Duration
		assert.NoError(t, json.Unmarshal(d.Context, &sent))
		name, _, _ := strings.Cut(strings.TrimPrefix(d.Callback.URL, "http://"), "/")
		s.mu.Lock()
		s.tasks[name] = append(s.tasks[name], time.Since(s.began)-sent)
		s.mu.Unlock()
		select {
		case <-time.After(shareDelay):
		case <-r.Context().Done():
		}
	})
	w.pipe(t, s.api.client(), oneStage())
	return s
}

// submit submits n tasks, one by one, at a part of what a node can do, and waits for them.
func (s *sharers) submit(part float64, n int) {
	s.Helper()
	c := s.api.client()
	ids := make([]string, n)
	var calls sync.WaitGroup
	pace := time.NewTicker(time.Duration(float64(time.Second) / (part * shareRate)))
	defer pace.Stop()
	for i := range n {
		<-pace.C
		calls.Go(func() {
			sent, err := json.Marshal(time.Since(s.began))
			assert.NoError(s, err)
			task, err := c.Submit(s.Context(), client.NewTask{Type: "pipe", Context: sent})
			assert.NoError(s, err)
			ids[i] = task.ID
		})
	}
	calls.Wait()
	awaitAll(s.T, c, ids)
}

// take returns what was delivered since the last call.
func (s *sharers) take() map[string][]time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.tasks
	s.tasks = map[string][]time.Duration{}
	return taken
}

// A node that takes all submits leaves nodes that only dispatch their share.
func TestDispatcherOnlyNodesGetTheirShare(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	for _, rest := range []int{1, 2}[:longform.Size(1, 2)] {
		s := startSharers(t, rest)
		s.submit(0.8, longform.Size(1, 500)) // connections are open then
		s.take()
		for _, part := range []float64{0.8, 0.2, 1.2}[:longform.Size(1, 3)] {
			n := longform.Size(300, int(10*part*shareRate))
			s.submit(part, n)
			s.judge(part, s.take())
		}
	}
}

// judge logs the shares, and checks them where there is something to share. A node keeps the few
// tasks that come at a fifth of its capacity.
func (s *sharers) judge(part float64, tasks map[string][]time.Duration) {
	var all []time.Duration
	for _, took := range tasks {
		all = append(all, took...)
	}
	for _, name := range slices.Sorted(maps.Keys(tasks)) {
		took := tasks[name]
		slices.Sort(took)
		s.Logf("%.0f %%, %d nodes: %s made %d %%, p50 %v, p99 %v", 100*part, len(s.rest)+1, name,
			100*len(took)/len(all), took[len(took)/2], took[len(took)*99/100])
	}
	slices.Sort(all)
	s.Logf("p50 of all: %v, p99: %v", all[len(all)/2], all[len(all)*99/100])
	for i := range s.rest {
		if part < 0.5 {
			continue
		}
		share := float64(len(tasks[fmt.Sprintf("rest%d", i)])) / float64(len(all))
		assert.Greater(s, share, 0.5/float64(len(s.rest)+1), "of all, at %.0f %%", 100*part)
	}
}
