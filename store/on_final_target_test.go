package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// A target is there after its call, also if another transaction makes the first tables of the
// tenant at the same time, as the first type does.
func TestTargetBesideTheFirstType(t *testing.T) {
	b := setup(t)
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `
		INSERT INTO tenant_acme.table_sets (name, first_pos, begin_pos, end_pos) VALUES ('', 1, 1, 1)`)
	require.NoError(t, err)
	done := make(chan *asyncflow.OnFinal)
	go func() { done <- b.told() }()
	b.blocked(1)
	require.NoError(t, tx.Commit(t.Context()))
	f := receive(t, done)
	kept, err := b.Catalog.Fresh(t.Context(), tenant, f.Target)
	require.NoError(t, err)
	require.Equal(t, asyncflow.OriginOf(f.URL), kept.Notifies)
}

// An end without a target is looked at less often the longer it waits: otherwise the ends of an
// hour would be written anew every ten seconds, before the follow-ups of other tasks.
func TestEndsWithoutATargetRest(t *testing.T) {
	b := setup(t)
	b.byHand()
	f := b.told()
	pipe := b.put(single())
	task := newTask(`1`)
	task.Options.OnFinal = f
	b.submit(task)
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, f.Target, false))
	b.end(pipe, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	b.exec(`UPDATE tenant_acme.journal_1 SET at = at - interval '20 min'`)
	b.followUp()
	require.Equal(t, 1, b.count(`SELECT count(*) FROM tenant_acme.outbox
		WHERE due > now() + interval '4 min' AND due < now() + interval '6 min'`))
}

// A task stays until its end is told, however short its retention is. It holds neither the drop nor
// the compaction of its roll after that.
func TestEndsThatAreToBeToldKeepTheirTask(t *testing.T) {
	for name, compacted := range map[string]bool{"drop": false, "compaction": true} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.byHand()
			pipe := b.put(single())
			task := newTask(`1`)
			task.Options.OnFinal = b.told()
			b.submit(task)
			b.end(pipe, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
			if compacted {
				later := newTask(`2`)
				later.Delay = asyncflow.NewDuration(time.Hour)
				b.submit(later)
				b.fill(10)
			}
			b.rollAndClear()
			if compacted {
				require.True(t, b.mark(1))
				require.True(t, b.compact(1, b.Clock.Now()), "other tasks go")
			} else {
				b.idle(true)
				require.False(t, b.drop(b.Clock.Now()))
			}
			b.followUp()
			require.Len(t, b.events(), 1)
			if !compacted {
				require.True(t, b.drop(b.Clock.Now()))
			}
		})
	}
}

// The endpoint that a target is made with doesn't count in the tenant's quota; further ones do.
func TestMoreEndpointsOfATargetCount(t *testing.T) {
	b := setup(t)
	f := b.told()
	limit(t, asyncflow.QuotaEndpoints, 1, b)
	another := func(path string) error {
		e := anEndpoint("https://shop.example/" + path)
		e.Type = f.Target
		e.Stage = asyncflow.TargetStage
		_, err := b.CreateEndpoint(t.Context(), tenant, e)
		return err
	}
	require.NoError(t, another("a"))
	require.Equal(t, asyncflow.CodeQuota, asyncflow.CodeOf(another("b")))
}
