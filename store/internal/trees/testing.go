package trees

import "context"

// Only the tests of package store use what stands here.

// SetChunks bounds transactions of FollowUp, so that few tasks need several.
func SetChunks(t *Trees, edges, spawn, stop int) {
	t.chunks.edges = edges
	t.chunks.spawn = spawn
	t.chunks.stop = stop
}

// SetSweptChildren bounds a sweep of fan-outs.
func SetSweptChildren(t *Trees, n int) { t.chunks.count = n }

// TryFollowUp is one transaction of FollowUp over at most n rows, without further tries.
func TryFollowUp(ctx context.Context, t *Trees, tenant string, n int) (more bool, err error) {
	more, _, err = t.tryFollowUp(ctx, tenant, n, nil)
	return more, err
}

// RingsOf returns a number for each task that waits for another; tasks that wait for each other
// have the same number.
func RingsOf(on map[int64][]int64) map[int64]int {
	edges := map[taskRef][]taskRef{}
	for id, others := range on {
		for _, other := range others {
			edges[taskRef{1, id}] = append(edges[taskRef{1, id}], taskRef{1, other})
		}
	}
	all := map[int64]int{}
	for k, ring := range ringsOf(edges) {
		all[k.id] = ring
	}
	return all
}
