package trees

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// All tasks of a cycle are told from those that only lead to it, or from it.
func TestRings(t *testing.T) {
	t.Parallel()
	ring := ringsByID(map[int64][]int64{1: {2}, 2: {3, 7}, 3: {4, 5}, 4: {2}, 5: {6}, 6: {5}})
	assert.Len(t, ring, 7)
	assert.Equal(t, ring[2], ring[3])
	assert.Equal(t, ring[2], ring[4])
	assert.Equal(t, ring[5], ring[6])
	different := map[int]bool{ring[1]: true, ring[2]: true, ring[5]: true, ring[7]: true}
	assert.Len(t, different, 4)
}

// Tasks in layers, each of which waits for all of the layer before: a walk for each edge would take
// longer than a test may.
func TestRingsOfLayers(t *testing.T) {
	t.Parallel()
	const layers, width = 30, 100
	on := map[int64][]int64{}
	for layer := int64(1); layer < layers; layer++ {
		for i := range int64(width) {
			for j := range int64(width) {
				id := layer*width + i
				on[id] = append(on[id], (layer-1)*width+j+1)
			}
		}
	}
	ring, known := ringsByID(on), map[int]bool{}
	for _, n := range ring {
		known[n] = true
	}
	require.Len(t, known, len(ring), "there is no cycle")
}

// ringsByID returns a number for each task that waits for another; tasks that wait for each other
// have the same number.
func ringsByID(on map[int64][]int64) map[int64]int {
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
