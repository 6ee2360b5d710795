package store_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// A rescue that a roll move stops, and that finds nothing left when it tries again, ends no lease:
// it returns and logs none. One that it ends is logged with the time since it was leased.
func TestRescueLogsWhatItEnded(t *testing.T) {
	eachSet(t, func(t *testing.T, b *bundle) {
		b.put(twoStages())
		var out bytes.Buffer
		late, err := store.Open(t.Context(), store.Config{URL: b.url, Node: "behind", Pool: 4,
			HotPool: 4, NoRoles: pgtest.NoRoles(),
			Log: slog.New(slog.NewJSONHandler(&out, nil))})
		require.NoError(t, err)
		t.Cleanup(late.Close)
		before, err := late.Catalog.Type(tenant, "pipe")
		require.NoError(t, err)
		lapse := func() string {
			id := b.submit(newTask(`1`))[0].ID
			b.leaseAll(b.known(), 1)
			b.exec(`UPDATE tenant_acme.lease SET leased_at = now() - interval '10 s',
				until = now() - interval '1 s'`)
			return id.String()
		}
		lapse()
		b.roll() // late doesn't know: it would write to a ready table that is sealed
		lease := b.at(1, `{lease}`)
		begin := func(sql string) (end func(sql string)) {
			tx, err := b.db.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), sql)
			require.NoError(t, err)
			return func(sql string) {
				_, err := tx.Exec(t.Context(), sql)
				require.NoError(t, err)
				require.NoError(t, tx.Commit(t.Context()))
			}
		}
		waits := func(n int) {
			eventually(t, "a transaction waits for a lock", func() bool {
				return b.count(`SELECT count(*) FROM `+pgtest.Activity()+` WHERE
					wait_event_type = 'Lock' AND datname = current_database()`) >= n
			})
		}
		release := begin(b.at(1, `LOCK TABLE {journal} IN ACCESS EXCLUSIVE MODE`))
		rescued := make(chan error, 1)
		ended := -1
		go func() {
			var err error
			ended, err = late.Rescue(t.Context(), before)
			rescued <- err
		}()
		waits(1) // the first try took the lease
		other := make(chan error, 1)
		go func() { // gets the table before the second try, and ends the lease as a node would
			_, err := b.db.Exec(t.Context(), `BEGIN; LOCK TABLE `+lease+
				` IN ACCESS EXCLUSIVE MODE; DELETE FROM `+lease+`; COMMIT`)
			other <- err
		}()
		waits(2)
		release(`SELECT 1`)
		require.NoError(t, receive(t, other))
		require.NoError(t, receive(t, rescued))
		require.Zero(t, ended)
		require.NotContains(t, out.String(), `"attempt"`)

		out.Reset()
		id := lapse()
		now, err := late.Catalog.Type(tenant, "pipe")
		require.NoError(t, err)
		require.NotEqual(t, before.End, now.End, "the second try was made")
		ended, err = late.Rescue(t.Context(), now)
		require.NoError(t, err)
		require.Equal(t, 1, ended)
		var line struct {
			Msg, Task, Outcome string
			Duration           time.Duration
		}
		require.NoError(t, json.Unmarshal(out.Bytes(), &line), out.String())
		require.Equal(t, []any{"attempt", id, "lost"}, []any{line.Msg, line.Task, line.Outcome})
		require.Greater(t, line.Duration, 9*time.Second)
	})
}
