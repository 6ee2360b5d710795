package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
)

// fillDueLater puts tasks of keys in line that are due in an hour: k000000 and so on.
func (b *bundle) fillDueLater(keys int) {
	b.t.Helper()
	b.fillKeysAt(1, keys, 1, "now() + interval '1 h'")
	b.exec(b.at(1, `UPDATE {ready} SET key = 'k' || key WHERE order_time > now()`))
	b.exec(b.at(1, `UPDATE {task} SET options =
		json_build_object('flow_key', 'k' || (options ->> 'flow_key')) WHERE order_time > now()`))
}

// fillKey puts due tasks of a key in line, in the order of the calls.
func (b *bundle) fillKey(key string, tasks int) {
	b.t.Helper()
	b.exec(b.at(1, `WITH t AS (
		INSERT INTO {task} (type, id, created_at, order_time, context, options)
		  SELECT {number}, last.id + n, now(),
		    last.at + n * interval '1 us', '1', json_build_object('flow_key', $1::text)
		  FROM (SELECT greatest(max(id), $3::bigint) AS id,
		    coalesce(max(order_time) FILTER (WHERE order_time < now()),
		      now() - interval '1 h') AS at FROM {task}) last, generate_series(1, $2::int) n
		  RETURNING *)
		INSERT INTO {ready} (type, order_time, id, seq, stage, attempt, key)
		  SELECT type, order_time, id, 1, 'first', 1, $1 FROM t`), key, tasks,
		asyncflow.NewTaskID("pipe", 1, 1000000).Number)
}

// A key with one task starts within two leases of any node beside a key with very many, a million
// in the long form, and whether its name comes before that one's in the ring or behind it: also if
// the walk meets thousands of keys with tasks that are due later.
func TestFairFewBesideMany(t *testing.T) {
	longform.Costly(t)
	for name, later := range map[string]int{"alone": 0, "beside idle keys": 20_000} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.put(fairStages(nil))
			far := open(t, b.url, "node-2")
			if later > 0 {
				b.fillDueLater(later)
			}
			b.fillKey("big", longform.Size(20_000, 1_000_000))
			nodes := []*bundle{b, far}
			for i := range 8 {
				require.Len(t, nodes[i%2].fairLease(10), 10)
				key := fmt.Sprint([]string{"a", "z"}[i/2%2], i)
				b.submit(keyed(key, "1"))
				begun := time.Now()
				found := served(nodes[i/4].fairLease(10), map[string]int{})
				served(nodes[(i+1)/4%2].fairLease(10), found)
				t.Log("two leases took", time.Since(begun))
				assert.Equal(t, 1, found[key], key)
			}
		})
	}
}

// A lease goes on where the last one stopped, on whichever node: so a key starts after one lease
// for each 500 keys with tasks that are due later, and one more, wherever its task is.
func TestFairWalkGoesOnBehindKeysThatAreDueLater(t *testing.T) {
	b := setup(t)
	b.put(fairStages(nil))
	nodes := []*bundle{b, open(t, b.url, "node-2")}
	b.fillDueLater(5000)
	b.fillKey("big", 3000)
	b.fillKey("z", 1)
	b.fillKey("big", 3000)
	leases := 0
	for found := map[string]int{}; found["z"] == 0; leases++ {
		require.Less(t, leases, 5000/500+2)
		served(nodes[leases%2].fairLease(10), found)
	}
	assert.Greater(t, leases, 5000/500-2, "the test reaches the bound")
}

// Keys with due tasks get equal shares of what the walk leaves, wherever their tasks are in line.
func TestFairSharesBesideKeysThatAreDueLater(t *testing.T) {
	b := setup(t)
	b.put(fairStages(map[string]int{"middle": 2}))
	b.fillDueLater(5000)
	for _, key := range []string{"first", "middle", "last"} {
		b.fillKey(key, 3000)
	}
	found := map[string]int{}
	for found["middle"] == 0 { // the walk comes to it
		clear(found)
		require.Len(t, b.fairLease(20), 20)
		served(b.fairLease(20), found)
	}
	clear(found)
	for range 50 {
		served(b.fairLease(20), found)
	}
	assert.InDelta(t, 250, found["first"], 25)
	assert.InDelta(t, 500, found["middle"], 50)
	assert.InDelta(t, 250, found["last"], 25)
}
