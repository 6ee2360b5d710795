package store_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// setupNoted opens a store that runs nothing in the background, and notes its statements.
func setupNoted(t *testing.T) (*bundle, *pgtest.Statements) {
	t.Helper()
	t.Parallel()
	noted, url := pgtest.Noted(t, pgtest.Database(t, prepare))
	s := pgtest.Insist(t, func() (*store.Store, error) {
		return store.Open(t.Context(), store.Config{URL: url, Node: "node-1", Pool: 4, HotPool: 4,
			NoRoles: pgtest.NoRoles(), Log: slog.New(slog.DiscardHandler)})
	})
	c := dispatcher.NewCommitter(s, nil)
	t.Cleanup(func() {
		c.Close()
		s.Close()
	})
	return &bundle{Store: s, Committer: c, t: t, url: url}, noted
}

// ran returns the statements that ran during do, without tests of connections.
func ran(s *pgtest.Statements, do func()) []string {
	return slices.DeleteFunc(s.During(do), func(sql string) bool {
		return strings.Contains(sql, "-- ping")
	})
}

// statementsOf puts a type, and returns the statements of a submit without rules, and of the lease
// or claim of its task.
func (b *bundle) statementsOf(
	noted *pgtest.Statements, name string, stages ...asyncflow.Mode,
) (submit, begin []string) {
	b.t.Helper()
	spec := patient()
	spec.Name = name
	spec.Stages = spec.Stages[:len(stages)]
	for i, mode := range stages {
		spec.Stages[i].Mode = mode
	}
	kind := b.put(spec)
	for range 2 { // the first time, connections and ids are prepared
		task := newTask(`1`)
		task.Type = name
		submit = ran(noted, func() { b.submit(task) })
		begin = ran(noted, func() {
			if stages[0] == asyncflow.ModeClaim {
				require.Len(b.t, b.claimFirst(kind), 1)
			} else {
				require.Len(b.t, b.lease(kind, 1), 1)
			}
		})
	}
	return submit, begin
}

// claimFirst asks once for a task of a type's first stage.
func (b *bundle) claimFirst(kind *store.Type) []asyncflow.Lease {
	b.t.Helper()
	ask := &store.ClaimAsk{Claimer: "anna", N: 1}
	_, err := b.LeaseForClaims(b.t.Context(), kind, kind.Stages[0].Name, []*store.ClaimAsk{ask}, 1,
		1<<20)
	require.NoError(b.t, err)
	return ask.Leases
}

// Tasks without rules cost no statement more where rules are possible: a submit and a lease are the
// same as in a type without a claimed stage, and a claim runs the statements that it ran before
// there were rules. In a line with rules a claim runs one more, which plans it.
func TestTasksWithoutRulesCostNoStatement(t *testing.T) {
	b, noted := setupNoted(t)
	plainSubmit, plainLease := b.statementsOf(noted, "plain", asyncflow.ModePush)
	submit, lease := b.statementsOf(noted, "both", asyncflow.ModePush, asyncflow.ModeClaim)
	assert.Equal(t, plainSubmit, submit)
	assert.Equal(t, plainLease, lease)
	counts(t, "submit: role, task, ready, tally", submit, 4)
	counts(t, "lease: BEGIN, role, ready, contexts, lease, COMMIT", lease, 6)

	submit, claim := b.statementsOf(noted, "judge", asyncflow.ModeClaim)
	counts(t, "submit to claimers", submit, len(plainSubmit))
	counts(t, "claim: BEGIN, role, open claims, wait, contexts, lease, who asked, COMMIT", claim, 8)

	task := ruled(notAnna)
	task.Type = "judge"
	b.submit(task)
	kind := b.kind("judge")
	require.Empty(t, b.claimFirst(kind)) // the node sees that there are rules in the line
	task.Options.Claim = nil
	b.submit(task)
	counts(t, "claim in a line with rules", ran(noted, func() {
		require.Len(t, b.claimFirst(kind), 1)
	}), len(claim)+1)
}

// counts checks how many statements there are.
func counts(t *testing.T, what string, all []string, want int) {
	t.Helper()
	assert.Len(t, all, want, "%s:\n%s", what, strings.Join(all, "\n---\n"))
}
