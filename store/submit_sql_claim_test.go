package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// A task that is submitted by SQL follows the rules that it is given, as one that is submitted by
// the API.
func TestSQLClaimRules(t *testing.T) {
	b := setup(t)
	b.claimType(nil)
	app := b.app()
	for rules, want := range map[string]*asyncflow.ClaimRules{
		`NULL`: nil,
		`'{"exclude": ["anna", "desk-*"], "labels": {"lang": "de"}}'`: {
			Exclude: []string{"anna", "desk-*"}, Labels: map[string]string{"lang": "de"}},
		`'{"exclude": null, "labels": {"lang": "<ü\""}}'`: {
			Labels: map[string]string{"lang": `<ü"`}},
	} {
		id, err := b.bySQL(app, `'pipe', '1', claim => `+rules)
		require.NoError(t, err, rules)
		assert.Equal(t, want, b.task(id).Options.Claim, rules)
	}
}

// SQL refuses the rules that the API refuses.
func TestRefusedSQLClaimRules(t *testing.T) {
	b := setup(t)
	b.claimType(nil)
	app := b.app()
	names := func(n, length int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(`"%0*d"`, length, i)
		}
		return `{"exclude":[` + strings.Join(all, ",") + `]}`
	}
	for rules, want := range map[string]string{
		`[]`:                           "must be an object",
		`{}`:                           "needs exclude or labels",
		`{"exclude":[]}`:               "needs exclude or labels",
		`{"exclude":"anna"}`:           "claim.exclude must be an array",
		`{"exclude":[1]}`:              "claim.exclude must have strings",
		`{"exclude":[""]}`:             "claim.exclude must have strings",
		`{"exclude":["a\nb"]}`:         "claim.exclude must have strings",
		`{"exclude":["a\u0000"]}`:      "without NUL",
		names(21, 1):                   "has 21 names; the limit is 20",
		names(1, 256):                  "1 to 255 bytes",
		names(20, 250):                 "the limit is 3072",
		`{"labels":["de"]}`:            "claim.labels must be an object",
		`{"labels":{"la=ng":"a"}}`:     "claim.labels must have names",
		`{"labels":{"lang":1}}`:        "claim.labels must have strings",
		`{"labels":{"a":"b","a":"c"}}`: "a name twice",
		`{"labels":{"` + strings.Repeat("a", 41) + `":"b"}}`: "up to 40",
		`{"except":["anna"]}`:                                "claim.except is not known",
	} {
		_, err := b.bySQL(app, `'pipe', '1', claim => '`+rules+`'`)
		var refused *pgconn.PgError
		require.ErrorAs(t, err, &refused, rules)
		assert.Equal(t, []string{pgerrcode.InvalidParameterValue, "claim"},
			[]string{refused.Code, refused.ColumnName}, rules)
		assert.Contains(t, refused.Message, want, rules)
	}
	_, err := b.bySQL(app, `'pipe', '1', claim => '`+names(12, 250)+`'`)
	require.NoError(t, err, "12 names of 250 bytes are short enough")
	b.put(patient())
	_, err = b.bySQL(app, `'pipe', '1', claim => '{"exclude": ["anna"]}'`)
	require.ErrorContains(t, err, "claim needs a stage of mode claim, and pipe has none")
}

// Rules change while a task is in line, delayed, or waits for others; not while it runs.
func TestChangedRulesInEachPlace(t *testing.T) {
	b := setup(t)
	b.claimType(nil)
	rules := &asyncflow.ClaimRules{Exclude: []string{"anna"}}
	patch := asyncflow.Patch{Claim: rules}
	late := newTask(`1`)
	late.RunAt = b.Clock.Now().Add(time.Hour)
	first := b.submit(newTask(`1`))[0].ID
	for _, id := range []asyncflow.TaskID{first, b.submit(late)[0].ID} {
		task, err := b.Change(t.Context(), tenant, id, patch)
		require.NoError(t, err)
		assert.Equal(t, rules, task.Options.Claim)
	}
	anna := &store.ClaimAsk{Claimer: "anna", N: 1}
	b.claimOf(anna)
	assert.Empty(t, anna.Leases)
	bob := &store.ClaimAsk{Claimer: "bob", N: 1}
	b.claimOf(bob)
	require.Len(t, bob.Leases, 1)
	_, err := b.Change(t.Context(), tenant, first, patch)
	assert.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
	var submitted *string
	require.NoError(t, b.db.QueryRow(t.Context(), b.at(first.Position(), `SELECT options::text
		FROM {task} WHERE id = $1`), first.Number).Scan(&submitted))
	assert.Nil(t, submitted, "the submit stays as it was")
}
