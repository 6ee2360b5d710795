package dispatcher

import "sync"

// jobs run in the background beside leases and attempts: they write the health of an endpoint, or
// release a flow key. Run waits for those under way, and none begins after that.
type jobs struct {
	mu       sync.Mutex
	over     bool
	underWay sync.WaitGroup
}

// do runs a job, unless they are over.
func (j *jobs) do(job func()) {
	if j.begin() {
		defer j.underWay.Done()
		job()
	}
}

// start runs a job in a goroutine of its own, unless they are over.
func (j *jobs) start(job func()) {
	if j.begin() {
		go func() {
			defer j.underWay.Done()
			job()
		}()
	}
}

func (j *jobs) begin() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.over {
		j.underWay.Add(1)
	}
	return !j.over
}

// end waits for the jobs under way and lets no other begin.
func (j *jobs) end() {
	j.mu.Lock()
	j.over = true
	j.mu.Unlock()
	j.underWay.Wait()
}
