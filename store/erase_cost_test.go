package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// What an erasure by an operation costs, beside a plain UPDATE of the contexts of as many tasks.
// The bytes are those of the server: what other tests write meanwhile is among them.
func TestErasureCosts(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	n := longform.Size(400, 20_000)
	context := `"` + strings.Repeat("x", 1000) + `"`
	for i := 0; i < n; i += 200 {
		for range 200 {
			task := newTask(context)
			task.Options.User = fmt.Sprint("user ", i)
			b.submit(task)
		}
		require.Len(t, b.failAll(), 200)
	}
	bytes := func(do func()) int {
		b.exec(`CHECKPOINT`)
		before := b.count(`SELECT (pg_current_wal_lsn() - '0/0')::bigint`)
		do()
		return b.count(`SELECT (pg_current_wal_lsn() - '0/0')::bigint`) - before
	}
	update := bytes(func() {
		b.exec(b.at(1, `UPDATE {task} SET context = context WHERE type = {number}`))
		b.exec(b.at(1, `UPDATE {journal} SET error = error WHERE type = {number}`))
	})
	var took time.Duration
	erased := bytes(func() {
		_, due := b.start(store.EraseTasks, store.NewOperation{By: "privacy",
			Filter: store.Filter{Type: "pipe"}})
		begin := time.Now()
		require.EqualValues(t, n, b.finish(due).Done)
		took = time.Since(begin)
	})
	t.Logf("%d tasks: %.0f erased a second; %d bytes of WAL an erased task, %d an updated one", n,
		float64(n)/took.Seconds(), erased/n, update/n)
}
