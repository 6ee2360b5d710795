package trees

import (
	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// followSubmitted fails tasks that were submitted by SQL and wait for themselves: their
// transactions didn't see the edges of concurrent transactions. Then it looks at their edges.
func (f edgeFollowUp) followSubmitted(t *config.Type, ids []int64) error {
	live, err := f.waitingIDs(t, ids)
	if err != nil || len(live) == 0 {
		return err
	}
	edges, err := f.edgesOf(t, live)
	if err != nil {
		return err
	}
	cycles, err := f.cycles(t, edges)
	if err != nil {
		return err
	}
	if err := f.moveOn(t, cycles); err != nil {
		return err
	}
	return f.followLook(t, live)
}

// cycles finds tasks that wait for themselves. Only a task with a key can: another task can name
// the key before the task is there. If several are in one cycle, it finds only one of them.
func (f edgeFollowUp) cycles(t *config.Type, edges []edge) (map[int64]decision, error) {
	var keyed []edge
	for _, e := range edges {
		if e.ownKey != "" && e.status == edgeOpen {
			keyed = append(keyed, e)
		}
	}
	if len(keyed) == 0 {
		return nil, nil
	}
	if err := lockDependents(f.ctx, f.tx, t.Set().Tables, followPatience); err != nil {
		return nil, err
	}
	c := newChains(f.tx, t.Set().Tables)
	if _, err := c.read(f.ctx, keyed); err != nil {
		return nil, err
	}
	found := map[int64]decision{}
	ring := ringsOf(c.on)
	for _, e := range keyed {
		if _, known := found[e.id]; !known && ring[e.on] == ring[e.taskRef] {
			found[e.id] = decision{asyncflow.Fail,
				asyncflow.BadDependency(int(e.n), cycle).Detail()}
			delete(c.on, e.taskRef)
			ring = ringsOf(c.on)
		}
	}
	return found, nil
}
