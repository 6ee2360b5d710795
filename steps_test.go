package asyncflow_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// branching is the pipeline in which inspect may end, be repeated or skip resize.
func branching() asyncflow.TaskType {
	t := pipeline()
	t.Stages[0].Next = []string{"report", "inspect", asyncflow.NextFinish}
	t.Stages[1].Next = []string{"inspect"}
	t.MaxSteps = 4
	return t
}

func TestSteps(t *testing.T) {
	t.Parallel()
	type options = asyncflow.Options
	const refused = asyncflow.VerdictKind("refused")
	vote := options{Child: &asyncflow.Child{Vote: true}}
	child := options{Child: &asyncflow.Child{}}
	for name, c := range map[string]struct {
		spec   asyncflow.TaskType
		stage  string
		o      options
		next   string
		finish bool
		want   asyncflow.VerdictKind
		to     string // the next stage, or what the error says
	}{
		"nothing named": {pipeline(), "inspect", options{}, "", false, asyncflow.Advance, "resize"},
		"the following stage": {pipeline(), "inspect", options{}, "resize", false,
			asyncflow.Advance, "resize"},
		"another one without next": {pipeline(), "inspect", options{}, "report", false, refused,
			`next_stage "report" is not allowed after stage "inspect": it must be next_stage: "resize"`},
		"finish without next": {pipeline(), "inspect", options{}, "", true, refused,
			`finish is not allowed after stage "inspect": it must be next_stage: "resize"`},
		"finish of the last stage": {pipeline(), "report", options{}, "", true, asyncflow.Succeed, ""},
		"a stage after the last one": {pipeline(), "report", options{}, "inspect", false, refused,
			`next_stage "inspect" is not allowed after stage "report": it must be finish: true`},
		"skip": {branching(), "inspect", options{}, "report", false, asyncflow.Advance, "report"},
		"repeat": {branching(), "inspect", options{}, "inspect", false, asyncflow.Advance,
			"inspect"},
		"finish": {branching(), "inspect", options{}, "", true, asyncflow.Succeed, ""},
		"the following stage isn't allowed": {branching(), "inspect", options{}, "resize", false,
			refused, `it must be next_stage: "report" or next_stage: "inspect" or finish: true`},
		"it must name one": {branching(), "inspect", options{}, "", false, refused,
			`next_stage is missing after stage "inspect"`},
		"nothing named, but one is allowed": {branching(), "resize", options{}, "", false,
			asyncflow.Advance, "inspect"},
		"a typo": {branching(), "inspect", options{}, "reprot", false, refused,
			`next_stage "reprot" is not allowed`},
		"a long typo": {branching(), "inspect", options{}, strings.Repeat("ä", 400), false, refused,
			`"` + strings.Repeat("ä", 50) + `…"`},
		"the word finish": {branching(), "inspect", options{}, "finish", false, refused,
			`next_stage "finish" is not allowed`},
		"an earlier name": {branching(), "inspect", options{}, "removed", false, asyncflow.Advance,
			"report"},
		"a vote":             {branching(), "inspect", vote, "report", false, refused, "a vote has no"},
		"a child":            {branching(), "inspect", child, "", true, refused, "a child has no"},
		"a child as always":  {branching(), "inspect", child, "", false, asyncflow.Succeed, ""},
		"in a removed stage": {branching(), "gone", options{}, "x", false, asyncflow.Park, "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.next == "removed" {
				c.spec.StageMapping = map[string]string{"removed": "report"}
			}
			l := asyncflow.Lease{Stage: c.stage, Attempt: 2, Options: c.o}
			o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200, Output: []byte(`1`),
				Next: c.next, Finish: c.finish}
			err := c.spec.CheckStep(l, o)
			if c.want == refused {
				require.ErrorContains(t, err, c.to)
				require.Equal(t, asyncflow.CodeNextStage, asyncflow.CodeOf(err))
				o = c.spec.Judged(l, o)
				require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
				require.Equal(t, "invalid_next_stage: "+err.Error(), o.Error)
				require.False(t, o.EndpointFailed(), "the endpoint is healthy")
				require.Empty(t, o.Output)
				return
			}
			require.NoError(t, err)
			require.Equal(t, o, c.spec.Judged(l, o))
			v := asyncflow.Decide(c.spec, l, o, now)
			require.Equal(t, []any{c.want, c.to}, []any{v.Kind, v.Stage})
			if c.want == asyncflow.Advance {
				require.Equal(t, 1, v.Attempt)
				require.Equal(t, asyncflow.EnterOrder(c.spec, c.spec.StageIndex(c.to), c.o, now),
					v.OrderTime)
			}
		})
	}
}

// A task fails after max_steps, unless it ends there. Its error shows where it was.
func TestMaxSteps(t *testing.T) {
	t.Parallel()
	l := asyncflow.Lease{Stage: "inspect", Attempt: 1, Seq: 3}
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Next: "inspect"}
	spec := branching()
	require.False(t, spec.NeedsPath(l, o), "a journal of so few rows has fewer steps")
	l.Seq = 4
	require.True(t, spec.NeedsPath(l, o))
	require.False(t, pipeline().NeedsPath(l, o), "it has no next")
	o.Path = []string{"inspect", "inspect"}
	require.Equal(t, asyncflow.Advance, asyncflow.Decide(spec, l, o, now).Kind)
	o.Path = append(o.Path, "inspect")
	v := asyncflow.Decide(spec, l, o, now)
	require.Equal(t, asyncflow.Verdict{Kind: asyncflow.Fail, Error: "it took 4 steps; max_steps " +
		"is 4: inspect → inspect → inspect → inspect"}, v)
	end := o
	end.Next, end.Finish = "", true
	require.Equal(t, asyncflow.Succeed, asyncflow.Decide(spec, l, end, now).Kind)
	spec.MaxSteps = 100
	o.Path = slices.Repeat([]string{"inspect", "resize", "report"}, 33)
	v = asyncflow.Decide(spec, l, o, now)
	require.Contains(t, v.Error, " → … 80 more … → ")
	require.Less(t, len(v.Error), 500)
	o.Path = nil
	l.Seq = asyncflow.MaxJournal
	v = asyncflow.Decide(spec, l, o, now)
	require.Equal(t, `its journal has 32000 rows, so it can't go back to "inspect"`, v.Error)
	o.Next = "report"
	require.Equal(t, asyncflow.Advance, asyncflow.Decide(spec, l, o, now).Kind)
}

func TestRevisits(t *testing.T) {
	t.Parallel()
	spec := branching()
	require.Equal(t, []bool{true, false, false},
		[]bool{spec.Revisits(0), spec.Revisits(1), spec.Revisits(2)}, "nothing leads to resize")
	require.False(t, pipeline().Revisits(0))
	spec.Stages[2].Next = []string{"resize", "finish"}
	require.True(t, spec.Revisits(1))
	require.False(t, spec.Revisits(-1))
}

func TestNextIsChecked(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*asyncflow.TaskType){
		"": func(*asyncflow.TaskType) {},
		"max_steps is 10001; it must be 1 to 10000": func(t *asyncflow.TaskType) {
			t.MaxSteps = 10001
		},
		`stages[0].next[0] is "reprot", which is neither a stage nor "finish"`: func(
			t *asyncflow.TaskType) {
			t.Stages[0].Next[0] = "reprot"
		},
		"stages[0].next has 52 entries; the limit is 51": func(t *asyncflow.TaskType) {
			t.Stages[0].Next = slices.Repeat([]string{"reprot"}, 52)
		},
		`stages[0].next[1] is "report", which an earlier entry is`: func(t *asyncflow.TaskType) {
			t.Stages[0].Next[1] = "report"
		},
		`stages[0].next[2] is "finish", which ends the task, and also the name of a stage: ` +
			`rename the stage`: func(t *asyncflow.TaskType) {
			t.Stages[1].Name = "finish"
		},
		`stages[1].next leads to no end of the task: add "finish", or a stage from which it can ` +
			`end; stages[2].next leads to no end of the task: add "finish", or a stage from which ` +
			`it can end`: func(t *asyncflow.TaskType) {
			t.Stages[1].Next = []string{"report"}
			t.Stages[2].Next = []string{"resize"}
		},
		"stages[0].next leads back to the first stage; with flow.ordered no stage may: put another " +
			"stage before it; stages[1].next leads back to the first stage; with flow.ordered no " +
			"stage may: put another stage before it": func(t *asyncflow.TaskType) {
			t.Flow = &asyncflow.Flow{Ordered: true}
		},
		"stages[0].next has 3 entries; a stage with fan_out or quorum can have one: its children " +
			"and votes don't choose": func(t *asyncflow.TaskType) {
			t.Stages[0].FanOut = &asyncflow.FanOut{Shards: 2}
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			spec := branching()
			change(&spec)
			err := spec.Validate()
			if want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, want)
		})
	}
}

// undoing is the pipeline in which failed reports go to undo, and failed undos back to inspect.
func undoing() asyncflow.TaskType {
	t := pipeline()
	t.Stages[2].OnFailure = &asyncflow.StageFailure{Next: "undo"}
	t.Stages[2].Next = []string{asyncflow.NextFinish}
	t.Stages = append(t.Stages, asyncflow.Stage{Name: "undo",
		OnFailure: &asyncflow.StageFailure{Next: "inspect"}})
	t.MaxSteps = 4
	return t.WithDefaults()
}

// A task goes on with on_failure.next once it fails for good, and only then.
func TestOnFailure(t *testing.T) {
	t.Parallel()
	spec := undoing()
	require.NoError(t, spec.Validate())
	last := spec.Stages[2].Retry.MaxAttempts
	failed := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "no"}
	for name, c := range map[string]struct {
		l    asyncflow.Lease
		o    asyncflow.Outcome
		want asyncflow.VerdictKind
		to   string
	}{
		"another attempt": {asyncflow.Lease{Stage: "report", Attempt: last - 1}, failed,
			asyncflow.Retry, "report"},
		"the last attempt": {asyncflow.Lease{Stage: "report", Attempt: last}, failed,
			asyncflow.Advance, "undo"},
		"not to be retried": {asyncflow.Lease{Stage: "report", Attempt: 1},
			asyncflow.Outcome{Kind: asyncflow.OutcomeRejected}, asyncflow.Advance, "undo"},
		"lost": {asyncflow.Lease{Stage: "report", Attempt: last},
			asyncflow.Outcome{Kind: asyncflow.OutcomeLost}, asyncflow.Advance, "undo"},
		"cancelled": {asyncflow.Lease{Stage: "report", Attempt: last},
			asyncflow.Outcome{Kind: asyncflow.OutcomeCancelled}, asyncflow.Cancel, ""},
		"done": {asyncflow.Lease{Stage: "report", Attempt: last},
			asyncflow.Outcome{Kind: asyncflow.OutcomeDone}, asyncflow.Succeed, ""},
		"a stage without it": {asyncflow.Lease{Stage: "inspect", Attempt: 1},
			asyncflow.Outcome{Kind: asyncflow.OutcomeRejected}, asyncflow.Fail, ""},
		"a child": {asyncflow.Lease{Stage: "report", Attempt: last,
			Options: asyncflow.Options{Child: &asyncflow.Child{}}}, failed, asyncflow.Fail, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := asyncflow.Decide(spec, c.l, c.o, now)
			require.Equal(t, []any{c.want, c.to}, []any{v.Kind, v.Stage})
			if v.Kind == asyncflow.Advance {
				require.Equal(t, 1, v.Attempt)
			}
		})
	}
}

// Failures that lead from one stage to the other end at max_steps, too.
func TestOnFailureEnds(t *testing.T) {
	t.Parallel()
	spec := undoing()
	l := asyncflow.Lease{Stage: "undo", Attempt: 1, Seq: 4}
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "no"}
	require.True(t, spec.NeedsPath(l, o))
	require.False(t, spec.NeedsPath(asyncflow.Lease{Stage: "inspect", Seq: 4}, o),
		"it fails anyway")
	o.Path = []string{"inspect", "resize", "report"}
	v := asyncflow.Decide(spec, l, o, now)
	require.Equal(t, asyncflow.Verdict{Kind: asyncflow.Fail, Error: "it took 4 steps; " +
		"max_steps is 4: inspect → resize → report → undo. It failed: no"}, v)
	o.Path = o.Path[1:]
	require.Equal(t, asyncflow.Advance, asyncflow.Decide(spec, l, o, now).Kind)
}

func TestBadOnFailure(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*asyncflow.TaskType){
		`stages[2].on_failure.next is "gone", which is not a stage`: func(t *asyncflow.TaskType) {
			t.Stages[2].OnFailure.Next = "gone"
		},
		"stages[2].on_failure.next is the stage itself": func(t *asyncflow.TaskType) {
			t.Stages[2].OnFailure.Next = "report"
		},
		"stages[2].on_failure can't be with fan_out or quorum": func(t *asyncflow.TaskType) {
			t.Stages[2].FanOut = &asyncflow.FanOut{Shards: 2}
		},
		"stages[3].next leads back to the first stage; with flow.ordered": func(t *asyncflow.TaskType) {
			t.Flow = &asyncflow.Flow{Ordered: true}
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			spec := undoing()
			change(&spec)
			require.ErrorContains(t, spec.Validate(), want)
		})
	}
}

// A stage may be visited again through failures, too.
func TestRevisitsByFailure(t *testing.T) {
	t.Parallel()
	spec := undoing()
	for stage, again := range []bool{true, true, true, true} {
		require.Equal(t, again, spec.Revisits(stage), "%d", stage)
	}
	spec.Stages[3].OnFailure = nil
	require.False(t, spec.Revisits(0))
}
