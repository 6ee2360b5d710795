package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// sentLink is link right after a decision.
func (b *bundle) sentLink(l asyncflow.Lease) store.Link {
	b.t.Helper()
	link, err := b.SentLink(b.t.Context(), tenant, l.ID, l.Seq, "wait")
	require.NoError(b.t, err)
	return link
}

// A signal to a key from before its task was there comes first, as one to the task does: the link
// isn't open until the wait takes it. Signals for something else don't count.
func TestALinkBehindASignalToAKey(t *testing.T) {
	b := setup(t)
	spec := linkedApproval()
	spec.Stages = append(spec.Stages, waiting("wait2", "released"))
	b.put(spec)
	send := func(name, key string) {
		_, err := b.SendSignal(t.Context(), tenant, asyncflow.Signal{Name: name, Type: "pipe",
			Key: key})
		require.NoError(t, err)
	}
	keyed := func(key string) asyncflow.Lease {
		task := newTask(`1`)
		task.Options.Key = key
		b.submit(task)
		return b.leaseAll(b.known(), 1)[0]
	}
	send("released", "other")
	send("approved", "none")
	other := keyed("other")
	require.True(t, b.link(other).Open, "the task has no signal for that wait")
	send("approved", "k")
	l := keyed("k")
	require.False(t, b.link(l).Open)
	require.Nil(t, b.link(l).Decided)
	b.settle(b.known(), l, to("wait", `1`))
	b.await()
	b.takeSignal(l.ID)
	require.False(t, b.link(l).Open)
	require.Nil(t, b.link(l).Decided)
	require.Equal(t, "second", b.leaseAll(b.known(), 1)[0].Stage)
}

// A recorded decision counts: the wait takes it before a signal that came in between. That signal
// is kept for the next wait.
func TestADecisionComesBeforeSignals(t *testing.T) {
	b := setup(t)
	b.put(linkedApproval())
	id := b.submit(newTask(`1`))[0].ID
	l := b.leaseAll(b.known(), 1)[0]
	link := b.link(l)
	require.True(t, link.Open)
	b.signal(id, "approved", `"in between"`)
	require.True(t, b.decide(link, "approve"))
	require.Equal(t, "approve", b.sentLink(l).Decided.Decision)
	b.settle(b.known(), l, to("wait", `1`))
	b.await()
	b.takeSignal(id)
	require.Equal(t, "approve", b.link(l).Decided.Decision)
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], to("first", `2`))
	l = b.passFirst()
	require.False(t, b.link(l).Open, "the signal is next")
	b.await()
	b.takeSignal(id)
	require.Equal(t, `"in between"`, string(b.leaseAll(b.known(), 1)[0].Context))
}

// A wait takes another signal just before the decision is sent: SentLink waits until that is known.
func TestADecisionThatComesTooLate(t *testing.T) {
	b := setup(t)
	b.put(linkedApproval())
	id := b.submit(newTask(`1`))[0].ID
	l := b.passFirst()
	b.await()
	b.followUp()
	link := b.link(l)
	require.True(t, link.Open)
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context())
	_, err = tx.Exec(t.Context(), `SELECT FROM tenant_acme.wait WHERE id = $1 FOR UPDATE`,
		id.Number)
	require.NoError(t, err)
	require.True(t, b.decide(link, "approve"))
	sent := make(chan error, 1)
	go func() {
		var err error
		link, err = b.SentLink(t.Context(), tenant, l.ID, l.Seq, "wait")
		sent <- err
	}()
	eventually(t, "it waits for the task, or has given up", func() bool {
		return len(sent) == 1 || b.count(`SELECT count(*) FROM `+pgtest.Activity()+`
			WHERE wait_event_type = 'Lock' AND datname = current_database()`) == 1
	})
	for _, sql := range []string{
		b.at(1, `INSERT INTO {journal} (type, id, seq, at, stage, attempt, outcome, next_time)
			SELECT type, id, seq, now(), stage, 1, 'signalled', order_time FROM {wait}`),
		b.at(1, `INSERT INTO {ready} (type, order_time, id, seq, stage, attempt)
			SELECT type, order_time, id, seq + 1, 'second', 1 FROM {wait}`),
		`DELETE FROM tenant_acme.wait`,
	} {
		_, err = tx.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, receive(t, sent))
	require.False(t, link.Open)
	require.Nil(t, link.Decided)
}

// A redrive to a wait that took its signal asks anew: the newest links count, once more. So they do
// after the next such redrive.
func TestLinksAfterARedriveToTheirWait(t *testing.T) { eachSet(t, testRedriveToTheWait) }

func testRedriveToTheWait(t *testing.T, b *bundle) {
	spec := linkedApproval()
	spec.Stages = append(spec.Stages, asyncflow.Stage{Name: "third"})
	spec.Stages[2].Next = nil
	b.put(spec)
	id := b.submit(newTask(`1`))[0].ID
	l := b.passFirst()
	b.await()
	b.followUp()
	require.True(t, b.decide(b.link(l), "approve"))
	b.takeSignal(id)
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], output(`2`))
	for _, decision := range []string{"reject", "approve"} {
		b.settle(b.known(), b.leaseAll(b.known(), 1)[0], badEnd)
		before := b.link(l)
		require.NotNil(t, before.Decided, "that of the last round")
		_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{Stage: "wait"})
		require.NoError(t, err)
		require.True(t, b.link(l).Open, "before it waits")
		require.Nil(t, b.link(l).Decided)
		b.await()
		b.followUp()
		link := b.link(l)
		require.True(t, link.Open)
		require.JSONEq(t, `{"summary":"ask"}`, string(link.Context))
		require.True(t, b.decide(link, decision))
		require.False(t, b.decide(link, "later"))
		require.Equal(t, decision, b.sentLink(l).Decided.Decision)
		b.takeSignal(id)
		require.Equal(t, decision, b.link(l).Decided.Decision)
		next := b.leaseAll(b.known(), 1)[0]
		require.Equal(t, "second", next.Stage)
		require.Contains(t, string(next.Context), decision)
		b.settle(b.known(), next, output(`2`))
	}
	b.checkTokens("pipe")
}

// A task that is redriven to its wait is cancelled there, with a decision that it did not take.
// After another redrive it takes that.
func TestADecisionIsKeptForTheNextRedrive(t *testing.T) {
	b := setup(t)
	b.put(linkedApproval())
	id := b.submit(newTask(`1`))[0].ID
	l := b.passFirst()
	b.await()
	b.followUp()
	require.True(t, b.decide(b.link(l), "approve"))
	b.takeSignal(id)
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], badEnd)
	redrive := func() {
		_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{Stage: "wait"})
		require.NoError(t, err)
	}
	redrive()
	require.True(t, b.decide(b.link(l), "reject"))
	_, err := b.Cancel(t.Context(), tenant, id, "no")
	require.NoError(t, err)
	require.Nil(t, b.link(l).Decided, "nothing counts now")
	require.False(t, b.link(l).Open)
	redrive()
	require.Equal(t, "reject", b.link(l).Decided.Decision)
	b.await()
	b.takeSignal(id)
	require.Contains(t, string(b.leaseAll(b.known(), 1)[0].Context), "reject")
}

// After a redrive to the wait, the links of the last visit count, and links of earlier rounds of
// the loop don't.
func TestTheNewestLinksCountAfterARedrive(t *testing.T) {
	b := setup(t)
	b.put(linkedApproval())
	id := b.submit(newTask(`1`))[0].ID
	round := func() asyncflow.Lease {
		l := b.passFirst()
		b.await()
		b.followUp()
		require.True(t, b.decide(b.link(l), "approve"))
		b.takeSignal(id)
		return l
	}
	old := round()
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], to("first", `2`))
	l := round()
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], badEnd)
	_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{Stage: "wait"})
	require.NoError(t, err)
	require.False(t, b.link(old).Open)
	require.Equal(t, "approve", b.link(old).Decided.Decision, "of its own round")
	require.True(t, b.link(l).Open)
}

// Only a decision that the wait may take comes before other signals: one that isn't kept any more,
// or was sent for another signal, keeps nothing waiting.
func TestADecisionThatCountsNoMore(t *testing.T) {
	for name, change := range map[string]string{
		"kept no longer": `SET kept_until = now() - interval '1 min'`,
		"another signal": `SET name = 'another'`,
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.put(linkedApproval())
			id := b.submit(newTask(`1`))[0].ID
			l := b.leaseAll(b.known(), 1)[0]
			require.True(t, b.decide(b.link(l), "approve"))
			b.exec(`UPDATE tenant_acme.signals ` + change)
			require.Nil(t, b.link(l).Decided)
			b.signal(id, "approved", `"later"`)
			b.settle(b.known(), l, to("wait", `1`))
			b.await()
			b.takeSignal(id)
			require.Equal(t, `"later"`, string(b.leaseAll(b.known(), 1)[0].Context))
		})
	}
}
