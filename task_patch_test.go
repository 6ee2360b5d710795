package asyncflow_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestPatchOrder(t *testing.T) {
	t.Parallel()
	const min = time.Minute
	entered := now.Add(-10 * min) // when its token row was written
	stood := func(d time.Duration) time.Time { return entered.Add(d) }
	for name, c := range map[string]struct {
		lease asyncflow.Lease
		patch asyncflow.Patch
		want  time.Time
	}{
		"a head start counts from when it came": {asyncflow.Lease{Stage: "inspect",
			OrderTime: entered}, asyncflow.Patch{Priority: asyncflow.Priority{60}}, stood(-min)},
		"that of its stage is taken back": {asyncflow.Lease{Stage: "resize",
			OrderTime: stood(-10 * time.Second)}, asyncflow.Patch{Priority: asyncflow.Priority{0}},
			entered},
		"and so is its own": {asyncflow.Lease{Stage: "inspect",
			OrderTime: stood(-time.Hour),
			Options:   asyncflow.Options{Priority: asyncflow.Priority{3600}}},
			asyncflow.Patch{Priority: asyncflow.Priority{60}}, stood(-min)},
		"a list has an entry for each stage": {asyncflow.Lease{Stage: "resize",
			OrderTime: stood(-10 * time.Second)},
			asyncflow.Patch{Priority: asyncflow.Priority{0, 120}},
			stood(-2 * min)},
		"a delayed task keeps its time": {asyncflow.Lease{Stage: "inspect",
			OrderTime: stood(time.Hour)}, asyncflow.Patch{Priority: asyncflow.Priority{60}},
			stood(time.Hour)},
		"a retry keeps its time": {asyncflow.Lease{Stage: "inspect", Attempt: 2,
			OrderTime: stood(-min)}, asyncflow.Patch{Priority: asyncflow.Priority{60}},
			stood(-min)},
		"a stage that is gone has no head start": {asyncflow.Lease{Stage: "gone",
			OrderTime: entered}, asyncflow.Patch{Priority: asyncflow.Priority{60}}, entered},
		"a time ahead": {asyncflow.Lease{Stage: "inspect", OrderTime: entered},
			asyncflow.Patch{RunAt: now.Add(min)}, now.Add(min)},
		"a time ahead for a retry": {asyncflow.Lease{Stage: "inspect", Attempt: 3,
			OrderTime: now.Add(time.Hour)}, asyncflow.Patch{RunAt: now.Add(min)}, now.Add(min)},
		"priority doesn't apply to a time ahead": {asyncflow.Lease{Stage: "inspect",
			OrderTime: entered},
			asyncflow.Patch{RunAt: now.Add(min), Priority: asyncflow.Priority{60}}, now.Add(min)},
		"a due task keeps its place when it is to run at once": {asyncflow.Lease{Stage: "inspect",
			OrderTime: stood(-min)}, asyncflow.Patch{RunAt: now}, stood(-min)},
		"and gets the head start of the same patch": {asyncflow.Lease{Stage: "inspect",
			OrderTime: entered}, asyncflow.Patch{RunAt: now, Priority: asyncflow.Priority{60}},
			stood(-min)},
		"at once, with the stage's head start": {asyncflow.Lease{Stage: "resize",
			OrderTime: now.Add(time.Hour)}, asyncflow.Patch{RunAt: now},
			now.Add(-10 * time.Second)},
		"at once, with a head start of its own": {asyncflow.Lease{Stage: "resize",
			OrderTime: now.Add(time.Hour)}, asyncflow.Patch{RunAt: now.Add(-min),
			Priority: asyncflow.Priority{60}}, now.Add(-min)},
		"a retry at once doesn't jump the queue": {asyncflow.Lease{Stage: "resize", Attempt: 2,
			OrderTime: now.Add(time.Hour)},
			asyncflow.Patch{RunAt: now, Priority: asyncflow.Priority{60}},
			now},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, c.patch.Order(pipeline(), c.lease, entered, now), name)
		})
	}
}

func TestPatchValidate(t *testing.T) {
	t.Parallel()
	for detail, p := range map[string]asyncflow.Patch{
		"": {Priority: asyncflow.Priority{0, 31536000}, RunAt: now.Add(year)},
		"priority is -1; it must be 0 to 31536000 seconds (a year)": {Priority: asyncflow.Priority{-1}},
		"run_at is more than 8760h0m0s (a year) ahead":              {RunAt: now.Add(year + 1)},
	} {
		t.Run(detail, func(t *testing.T) {
			requireRefusal(t, p.Validate(now), asyncflow.CodeInvalid, detail)
		})
	}
}
