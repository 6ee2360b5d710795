package hot

import "slices"

// turn is the state of the turns of a fair type: the flow key that had the last one, and how many
// more tasks it may start in it. "" is the key of all tasks without one.
type turn struct {
	key  string
	left int
}

// ring are flow keys with due tasks, in the order of their turns. In its turn, a key may start as
// many tasks as its weight. Since every task counts as one, a key that starts fewer is without
// another due task, and saves nothing for its next turn: this is deficit round robin.
type ring struct {
	keys []ringKey
	// whole: there are no due tasks of another key, so that the turns begin anew after the last key
	whole bool
	at    int // the key in turn
	left  int // how many tasks it may still start
}

type ringKey struct {
	key    string
	weight int
	empty  bool // without a further due task
}

// newRing returns a ring that goes on after the last turn.
func newRing(keys []string, weight func(string) int, whole bool, last turn) *ring {
	r := &ring{whole: whole}
	for _, key := range keys {
		r.keys = append(r.keys, ringKey{key: key, weight: max(1, weight(key))})
	}
	if len(keys) > 0 {
		r.left = r.keys[0].weight
		if keys[0] == last.key && last.left > 0 {
			r.left = min(last.left, r.left)
		}
	}
	return r
}

// deal returns how many of n tasks each key may start. It goes on where it ended.
func (r *ring) deal(n int) []int {
	shares := make([]int, len(r.keys))
	for empty := 0; n > 0 && r.at < len(r.keys) && empty < len(r.keys); {
		share := min(n, r.left)
		empty++
		if !r.keys[r.at].empty {
			shares[r.at] += share
			r.left -= share
			n -= share
			empty = 0
		}
		if r.left == 0 || r.keys[r.at].empty {
			r.next()
		}
	}
	return shares
}

// next gives the turn to the next key. After the last one it is nobody's, unless the ring is whole.
func (r *ring) next() {
	r.at++
	if r.at == len(r.keys) && r.whole {
		r.at = 0
	}
	if r.at < len(r.keys) {
		r.left = r.keys[r.at].weight
	}
}

// inTurn returns candidates in the order of the turns, each with what its key may still start in
// its turn. It begins at the first key, which may start first tasks. The candidates of each key are
// in order.
func (r *ring) inTurn(found []Candidate, first int) []Candidate {
	byKey := map[string][]Candidate{}
	for _, c := range found {
		byKey[c.LineKey] = append(byKey[c.LineKey], c)
	}
	all := make([]Candidate, 0, len(found))
	for round := 0; len(all) < len(found); round++ {
		for i, k := range r.keys {
			left := k.weight
			if round == 0 && i == 0 {
				left = first
			}
			some := byKey[k.key]
			some = some[:min(left, len(some))]
			byKey[k.key] = byKey[k.key][len(some):]
			for _, c := range some {
				left--
				c.turn = turn{k.key, left}
				all = append(all, c)
			}
			if len(some) > 0 && k.empty && len(byKey[k.key]) == 0 {
				all[len(all)-1].turn.left = 0
			}
		}
	}
	return all
}

// lastTurn returns the turn of the last candidate that nothing blocked; if there is none, of the
// last one.
func lastTurn(found []Candidate) (last turn, any bool) {
	for _, c := range slices.Backward(found) {
		if c.Blocked == "" && !c.back {
			return c.turn, true
		}
	}
	if len(found) == 0 {
		return turn{}, false
	}
	return found[len(found)-1].turn, true
}
