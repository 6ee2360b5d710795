package dispatcher

import "sync"

// chores are what is done beside leases and attempts: the health of an endpoint is
// written, a flow key is looked at again. Run waits for those under way, and none begins
// after that.
type chores struct {
	mu       sync.Mutex
	over     bool
	underWay sync.WaitGroup
}

// do runs a chore, unless they are over.
func (c *chores) do(chore func()) {
	if c.begin() {
		defer c.underWay.Done()
		chore()
	}
}

// start runs a chore in a goroutine of its own, unless they are over.
func (c *chores) start(chore func()) {
	if c.begin() {
		go func() {
			defer c.underWay.Done()
			chore()
		}()
	}
}

func (c *chores) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.underWay.Add(1)
	}
	return !c.over
}

// end waits for the chores under way and lets no other begin.
func (c *chores) end() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.underWay.Wait()
}
