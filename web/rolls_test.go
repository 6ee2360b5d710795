package web_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
)

// The page of a type shows its rolls: how large and old they are, and when they go.
func TestRollsOfAType(t *testing.T) {
	p := openPage(t, all...)
	ctx := t.Context()
	const name = "rolled"
	p.makeType(name)
	p.open("/console/types/" + name)
	p.Click("Rolls")
	row := func(n int) string {
		return fmt.Sprintf(`words(document.querySelectorAll("[aria-label=Rolls] tbody tr")[%d])`, n)
	}
	p.Run(`return ` + row(0) + `.endsWith("open, shared next at 5,000,000 tasks") ||
		` + row(0) + `.includes("open, shared next at 5,000,000 tasks, or in ")`)
	p.See("Its tasks and its size are those of all these types together.")

	const own = "rolled-own"
	_, err := p.api.PutTaskType(ctx, own, client.TaskTypeSpec{RollRows: 1000,
		Retention: client.Retention{Tasks: client.NewDuration(48 * time.Hour)},
		Stages:    []client.Stage{{Name: "only"}}})
	require.NoError(t, err)
	waiting := make([]client.NewTask, 1000)
	for i := range waiting {
		waiting[i] = client.NewTask{Type: own, Context: client.JSON(`1`),
			Delay: client.NewDuration(time.Hour)}
	}
	results, err := p.api.SubmitMany(ctx, waiting)
	require.NoError(t, err)
	for _, r := range results {
		require.NoError(t, r.Err)
	}
	until := func(done func([]client.Roll) bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			list, err := p.api.TaskTypeRolls(ctx, own)
			require.NoError(t, err)
			return len(list.Data) == 2 && done(list.Data)
		}, patience, 100*time.Millisecond)
	}
	until(func(rolls []client.Roll) bool { return !rolls[1].DrainedAt.IsZero() })
	p.open("/console/types/" + own)
	p.Click("Rolls")
	p.Run(`return /^\d+ 0 [\d.]+ KiB .* open next at 1,000 tasks$/.test(` + row(0) + `)`)
	p.Run(`return /^\d+ 1,000 [\d.]+ KiB .* drained .* a task may be live 2 d after its last task/` +
		`.test(` + row(1) + `)`)
	p.Gone("those of all these types")
	require.Empty(t, p.axe())

	_, err = p.api.CancelAll(ctx, client.BulkCancellation{Type: own})
	require.NoError(t, err)
	until(func(rolls []client.Roll) bool { return !rolls[1].DropsAt.IsZero() })
	p.open("/console/types/" + own)
	p.Click("Rolls")
	p.Run(`return /all tasks ended .* (in 1 d 23 h|in 2 d)(, but for live tasks)?$/.test(` + row(1) + `)`)
	p.quiet()
}
