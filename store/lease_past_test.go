package store_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// lookBack is a type that gives its second stage the input and the outputs of both.
func lookBack() asyncflow.TaskType {
	t := twoStages()
	t.Stages[1].Deliver = &asyncflow.Deliver{Input: true, Outputs: []string{"first", "second"}}
	return t.WithDefaults()
}

// given returns what the stage of a lease is given: a document, its length if there is a URL for
// it, or null.
func (b *bundle) given(l asyncflow.Lease) map[string]string {
	b.t.Helper()
	leases := []asyncflow.Lease{l}
	n, err := b.ReadPast(b.t.Context(), b.known(), leases, 8<<20)
	require.NoError(b.t, err)
	require.Equal(b.t, 1, n)
	if leases[0].Past == nil {
		return nil
	}
	all := map[string]string{}
	for _, doc := range leases[0].Past {
		all[doc.Stage] = "null"
		if doc.JSON != nil {
			require.Len(b.t, doc.JSON, doc.Bytes)
			all[doc.Stage] = string(doc.JSON)
		} else if doc.Linked() {
			all[doc.Stage] = fmt.Sprint(doc.Bytes)
		}
	}
	return all
}

// output is the outcome of a worker that did a stage.
func output(doc string) asyncflow.Outcome {
	return asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(doc)}
}

// A stage is given the context as the task was submitted, byte for byte, and the latest outputs of
// stages. A redrive with another context changes neither; of a stage that ran again the new output
// counts.
func TestPastOfAStage(t *testing.T) { eachSet(t, testPastOfAStage) }

func testPastOfAStage(t *testing.T, b *bundle) {
	const input = "{\"z\": 1e2,  \"a\":\"\\u003c\" }"
	b.put(lookBack())
	id := b.submit(newTask(input))[0].ID
	l := b.leaseAll(b.known(), 1)[0]
	require.Nil(t, b.given(l), "the first stage asks for nothing")
	b.settle(b.known(), l, output(`{"n": 1.0}`))
	l = b.leaseAll(b.known(), 1)[0]
	require.Equal(t, map[string]string{"": input, "first": `{"n": 1.0}`, "second": "null"},
		b.given(l))
	b.settle(b.known(), l, badEnd)

	_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{Context: []byte(`"edited"`)})
	require.NoError(t, err)
	l = b.leaseAll(b.known(), 1)[0]
	require.Equal(t, `"edited"`, string(l.Context))
	require.Equal(t, map[string]string{"": input, "first": `{"n": 1.0}`, "second": "null"},
		b.given(l))
	b.settle(b.known(), l, badEnd)

	_, err = b.Redrive(t.Context(), tenant, id,
		store.Redrive{Stage: "first", Context: []byte(`"again"`)})
	require.NoError(t, err)
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], output(`2`))
	require.Equal(t, map[string]string{"": input, "first": `2`, "second": "null"},
		b.given(b.leaseAll(b.known(), 1)[0]))
}

// Before its first stage is over, a task's context is its input, and there are no outputs: nothing
// is read.
func TestPastOfTheFirstStage(t *testing.T) {
	b := setup(t)
	spec := lookBack()
	spec.Stages[0].Deliver = spec.Stages[1].Deliver
	b.put(spec)
	b.submit(newTask(`[1]`))
	l := b.leaseAll(b.known(), 1)[0]
	b.exec(b.at(1, `UPDATE {task} SET context = '"read"'`))
	require.Equal(t, map[string]string{"": `[1]`, "first": "null", "second": "null"}, b.given(l))
}

// What a removed stage put out is the output of the stage to which it is mapped. A stage that
// others are given the output of can't be removed without them.
func TestPastOfARenamedStage(t *testing.T) {
	b := setup(t)
	b.put(lookBack())
	b.submit(newTask(`1`))
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], output(`"old"`))
	renamed := lookBack()
	renamed.Stages[0].Name = "begin"
	renamed.StageMapping = map[string]string{"first": "begin"}
	require.ErrorContains(t, renamed.Validate(), `stages[1].deliver.outputs has "first", which `+
		`is not a stage of the type`)
	renamed.Stages[1].Deliver = &asyncflow.Deliver{Outputs: []string{"begin"}}
	b.put(renamed)
	require.Equal(t, map[string]string{"begin": `"old"`}, b.given(b.leaseAll(b.known(), 1)[0]))
}

// After a roll, and after its journal was made anew, all of a task's past is still there.
func TestPastInAnEarlierRoll(t *testing.T) {
	b := setup(t)
	b.put(lookBack())
	b.fill(5)
	b.submit(newTask(`{"in": 1}`))
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], output(`{"out": 1}`))
	l := b.leaseAll(b.known(), 1)[0]
	b.rollAndClear()
	require.True(t, b.mark(1))
	require.True(t, b.compact(1, b.Clock.Now()))
	require.Equal(t, 1, b.count(b.at(1, `SELECT count(*) FROM {task}`)))
	require.Equal(t, map[string]string{"": `{"in": 1}`, "first": `{"out": 1}`, "second": "null"},
		b.given(l))
}

// Documents that are too long together come by their URL, the longest first, and can be read alone.
func TestLongPast(t *testing.T) {
	b := setup(t)
	spec := lookBack()
	spec.MaxDeliverBytes = 1000
	b.put(spec)
	long := `"` + strings.Repeat("x", 800) + `"`
	b.submit(newTask(long))
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], output(`"`+strings.Repeat("y", 300)+`"`))
	l := b.leaseAll(b.known(), 1)[0]
	require.Equal(t, map[string]string{"": "802", "first": `"` + strings.Repeat("y", 300) + `"`,
		"second": "null"}, b.given(l))
	doc, err := b.PastDocument(t.Context(), b.known(), l, "")
	require.NoError(t, err)
	require.Equal(t, long, string(doc))
	doc, err = b.PastDocument(t.Context(), b.known(), l, "second")
	require.NoError(t, err)
	require.Nil(t, doc)
}

// One read brings no more than it may, but for the first task: the remaining ones stay as they are.
func TestReadPastIsBounded(t *testing.T) {
	b := setup(t)
	b.put(lookBack())
	const size, tasks = 10_000, 6
	for range tasks {
		b.submit(newTask(`"` + strings.Repeat("x", size-2) + `"`))
	}
	for _, l := range b.leaseAll(b.known(), tasks) {
		b.settle(b.known(), l, output(`7`))
	}
	leases := b.leaseAll(b.known(), tasks)
	require.Len(t, leases, tasks)
	for most, want := range map[int]int{1: 1, size + 1: 1, 3*size + 3: 3, 100 * size: tasks} {
		all := append([]asyncflow.Lease{}, leases...)
		n, err := b.ReadPast(t.Context(), b.known(), all, most)
		require.NoError(t, err)
		require.Equal(t, want, n, "of %d bytes", most)
		for i, l := range all {
			if i >= n {
				require.Nil(t, l.Past)
				continue
			}
			require.Equal(t, size+1, l.PastSize())
		}
	}
}

// A child works on its own part, which is its input. The outputs are its parent's; a vote is given
// the parent's input, too.
func TestPastOfAChild(t *testing.T) {
	b := setup(t)
	b.byHand()
	spec := lookBack()
	b.put(spec)
	parent := b.submit(newTask(`{"items":[1,2]}`))[0].ID
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], output(`{"items":[10,20]}`))
	rule := asyncflow.FanOut{Items: "/items"}
	spec.Stages[1].FanOut = &rule
	b.put(spec)
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], asyncflow.Outcome{
		Kind: asyncflow.OutcomeFannedOut, FannedOut: &asyncflow.FannedOut{FanOut: rule, Count: 2}})
	b.followUp()
	child := b.leaseAll(b.known(), 1)[0]
	require.Equal(t, parent.Number, child.Options.Child.Parent)
	require.Equal(t, map[string]string{"": `10`, "first": `{"items":[10,20]}`, "second": "null"},
		b.given(child))
	child.Options.Child.Vote = true
	require.Equal(t, map[string]string{"": `{"items":[1,2]}`, "first": `{"items":[10,20]}`,
		"second": "null"}, b.given(child))
}

// A voter doesn't learn how an earlier vote in the same stage was decided.
func TestAVoteIsNotGivenEarlierVotes(t *testing.T) {
	b := setup(t)
	b.put(lookBack())
	b.submit(newTask(`1`))
	l := b.leaseAll(b.known(), 1)[0]
	b.settle(b.known(), l, output(`"decided"`))
	l = b.leaseAll(b.known(), 1)[0]
	vote := l
	vote.ID.Number++
	vote.Options.Child = &asyncflow.Child{Parent: l.ID.Number, Vote: true}
	require.Equal(t, `"decided"`, b.given(vote)["first"])
	b.exec(b.at(1, `UPDATE {journal} SET stage = 'second'`))
	require.Equal(t, "null", b.given(vote)["second"])
	vote.Options.Child.Vote = false
	require.Equal(t, `"decided"`, b.given(vote)["second"])
}

// An output may be many rows back in the journal, under an earlier name of its stage.
func TestOutputOfLongAgo(t *testing.T) {
	b := setup(t)
	spec := looping()
	spec.Stages = append(spec.Stages, asyncflow.Stage{Name: "third"},
		asyncflow.Stage{Name: "never"})
	spec.Stages[0].Next = []string{"second", "third"}
	spec.Stages[2].Next = []string{"first", asyncflow.NextFinish}
	spec.Stages[1].Deliver = &asyncflow.Deliver{Outputs: []string{"third", "first", "never"}}
	b.put(spec.WithDefaults())
	id := b.submit(newTask(`0`))[0].ID
	b.goTo(b.leaseAll(b.known(), 1)[0], to("third", `1`))
	b.goTo(b.leaseAll(b.known(), 1)[0], to("first", `"of third"`))
	b.goTo(b.leaseAll(b.known(), 1)[0], to("second", `"of first"`))
	b.exec(b.at(1, `INSERT INTO {journal} (type, id, seq, at, stage, attempt, outcome)
		SELECT type, id, s, at, 'second', 1, 'released' FROM {journal}, generate_series(4, 200) s
		WHERE seq = 1`))
	l := b.leaseAll(b.known(), 1)[0]
	require.Equal(t, id, l.ID)
	want := map[string]string{"third": `"of third"`, "first": `"of first"`, "never": "null"}
	require.Equal(t, want, b.given(l))

	spec.Stages[2].Name = "last"
	spec.Stages[0].Next[1] = "last"
	spec.Stages[1].Deliver.Outputs[0] = "last"
	spec.StageMapping = map[string]string{"third": "last"}
	b.put(spec.WithDefaults())
	want = map[string]string{"last": `"of third"`, "first": `"of first"`, "never": "null"}
	require.Equal(t, want, b.given(l))
}
