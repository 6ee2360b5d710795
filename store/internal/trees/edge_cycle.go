package trees

// rings finds the tasks that wait for themselves, in one depth-first walk over the edges (Tarjan's
// algorithm): with a walk for each edge, a large request would hold up every other request.
type rings struct {
	on     map[taskRef][]taskRef
	order  map[taskRef]int // of the tasks that the walk came to, from 1
	ringOf map[taskRef]int // by task that is done with; tasks of one ring wait for each other
	path   []taskRef       // that are not done with
}

// ringsOf returns a number for each task that edges lead from or to. Two tasks have the same one if
// edges lead from each to the other.
func ringsOf(on map[taskRef][]taskRef) map[taskRef]int {
	r := &rings{on: on, order: map[taskRef]int{}, ringOf: map[taskRef]int{}}
	for k := range on {
		if r.order[k] == 0 {
			r.walk(k)
		}
	}
	return r.ringOf
}

// walk walks on from a task, and returns the first task on the path to which edges lead from it.
func (r *rings) walk(k taskRef) (first int) {
	n := len(r.order) + 1
	first = n
	r.order[k] = n
	r.path = append(r.path, k)
	for _, on := range r.on[k] {
		switch {
		case on.id == 0 || r.ringOf[on] != 0:
		case r.order[on] != 0:
			first = min(first, r.order[on])
		default:
			first = min(first, r.walk(on))
		}
	}
	for last := (taskRef{}); first == n && last != k; {
		last = r.path[len(r.path)-1]
		r.path = r.path[:len(r.path)-1]
		r.ringOf[last] = n
	}
	return first
}
