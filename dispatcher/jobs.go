package dispatcher

import "sync"

// jobs run in the background beside leases and attempts. They write the health of an endpoint, or
// release a flow key. Run waits for the jobs under way; none begins after that.
type jobs struct {
	mu       sync.Mutex
	over     bool
	underWay sync.WaitGroup
}

// do runs a job, unless end was called.
func (j *jobs) do(job func()) {
	if j.begin() {
		defer j.underWay.Done()
		job()
	}
}

// start runs a job in a goroutine of its own, unless end was called.
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

// end waits for the jobs under way, and prevents new ones.
func (j *jobs) end() {
	j.mu.Lock()
	j.over = true
	j.mu.Unlock()
	j.underWay.Wait()
}
