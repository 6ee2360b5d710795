package asyncflow_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
)

func TestOutcome(t *testing.T) {
	q := asyncflow.Quorum{AgreeOn: "/label"}
	for output, want := range map[string]string{
		`{"label": {"b": 1.0, "a": [ "<é>" ]}}`: `{"a":["<é>"],"b":1.0}`,
		`{"label": null}`:                       `null`,
		`{"label": 12345678901234567890}`:       `12345678901234567890`,
		`{"other": 1}`:                          ``,
		`[1]`:                                   ``,
		``:                                      ``,
		`{"label": "\ud83d\ude00"}`:             `"😀"`,
		`{"label": "\\ud800"}`:                  `"\\ud800"`,
		`{"label": "\ud800"}`:                   ``,
		`{"label": "\ud801 \udc00"}`:            ``,
		`{"label": "\udc00\ud801"}`:             ``,
		`{"label": ["\ud800\ud800\udc00"]}`:     ``,
		`{"label": {"\ud800": 1}}`:              ``,
		`{"label":"` + strings.Repeat("x", asyncflow.MaxOutcome) + `"}`: ``,
	} {
		t.Run(output, func(t *testing.T) {
			assert.Equal(t, want, string(q.Outcome(json.RawMessage(output))), "%.80s", output)
		})
	}
	assert.Equal(t, `{"a":1}`, string((&asyncflow.Quorum{}).Outcome([]byte(`{ "a": 1 }`))))
}

// Of several votes of a claimer the first one counts; votes that were pushed are of no claimer.
func TestCountOfVotes(t *testing.T) {
	q := asyncflow.Quorum{Votes: 2, MaxVotes: 5, MaxErrors: 1}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cast := func(claimer, outcome string, second int) asyncflow.Vote {
		return asyncflow.Vote{Claimer: claimer, Status: asyncflow.StatusSucceeded,
			Outcome: json.RawMessage(outcome), At: at.Add(time.Duration(second) * time.Second)}
	}
	tally := q.Count([]asyncflow.Vote{cast("anna", `"cow"`, 3), cast("anna", `"cat"`, 1),
		cast("bob", `"dog"`, 2)})
	assert.Equal(t, 1, tally.Needed())
	assert.Equal(t, `no outcome has 2 votes: 1 × "cat", 1 × "dog"`, tally.String())
	assert.Nil(t, tally.Outcome())
	tally = q.Count([]asyncflow.Vote{cast("", `"dog"`, 1), cast("", `"cat"`, 2),
		cast("", `"cat"`, 3)})
	require.True(t, tally.Decided())
	doc, err := json.Marshal(tally)
	require.NoError(t, err)
	assert.JSONEq(t, `{"outcome":"cat","votes":[{"outcome":"dog","at":"2026-01-01T00:00:01Z"},
		{"outcome":"cat","at":"2026-01-01T00:00:02Z"},{"outcome":"cat","at":"2026-01-01T00:00:03Z"}]}`,
		string(doc))
	assert.Equal(t, "no outcome has 2 votes: none", q.Count(nil).String())
}

// However votes come, if there are never more at once than are needed, none is wasted: there is a
// decision at the very vote that makes it, or it is clear that there can't be any.
func TestNoVoteIsWasted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := asyncflow.Quorum{Votes: rapid.IntRange(1, 5).Draw(t, "votes")}
		q.MaxVotes = rapid.IntRange(q.Votes, 9).Draw(t, "max_votes")
		q.MaxErrors = rapid.IntRange(0, 3).Draw(t, "max_errors")
		var votes []asyncflow.Vote
		live := 0
		for range 100 {
			tally := q.Count(votes)
			if tally.Decided() || tally.Failed() {
				if tally.Decided() && live > 0 {
					t.Fatalf("%d votes are wasted: %s", live, tally)
				}
				return
			}
			if live > tally.Needed() {
				t.Fatalf("%d votes at once; %d are needed: %s", live, tally.Needed(), tally)
			}
			live += rapid.IntRange(1, max(1, tally.Needed()-live)).Draw(t, "more")
			if live > tally.Needed() {
				live = tally.Needed()
			}
			live--
			v := asyncflow.Vote{Status: asyncflow.StatusSucceeded, Outcome: json.RawMessage(
				rapid.SampledFrom([]string{`1`, `2`, `3`}).Draw(t, "outcome"))}
			if rapid.IntRange(0, 9).Draw(t, "error") == 0 {
				v = asyncflow.Vote{Status: asyncflow.StatusFailed}
			}
			votes = append(votes, v)
		}
		t.Fatalf("no end: %+v", q)
	})
}

// A vote decides alone only if it is the first one that was made, but for errors.
func TestFirstVote(t *testing.T) {
	q := asyncflow.Quorum{Votes: 3, MaxVotes: 3, MaxErrors: 5, Trust: &asyncflow.Trust{After: 4}}
	vote := asyncflow.Vote{Claimer: "anna", Status: asyncflow.StatusSucceeded,
		Outcome: json.RawMessage(`1`)}
	failed := asyncflow.Vote{Claimer: "bob", Status: asyncflow.StatusFailed}
	assert.Equal(t, 1, q.Count(nil).Needed())
	assert.Equal(t, 1, q.Count([]asyncflow.Vote{failed}).Needed())
	assert.Equal(t, "anna", q.Count([]asyncflow.Vote{vote}).First(1))
	assert.Equal(t, "anna", q.Count([]asyncflow.Vote{failed, vote}).First(2))
	assert.Empty(t, q.Count([]asyncflow.Vote{vote}).First(3), "it was not trusted before")
	alone := 0
	for i := range 1000 {
		tally := q.Count([]asyncflow.Vote{vote})
		tally.Trust(3)
		assert.False(t, tally.Decided())
		vote.At = vote.At.Add(time.Duration(i) * time.Microsecond)
		tally, again := q.Count([]asyncflow.Vote{vote}), q.Count([]asyncflow.Vote{vote})
		tally.Trust(4)
		again.Trust(4)
		assert.Equal(t, tally.Decided(), again.Decided(), "it is drawn once")
		if tally.Decided() {
			alone++
		}
	}
	assert.InDelta(t, 750, alone, 70)
}
