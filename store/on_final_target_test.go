package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

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
