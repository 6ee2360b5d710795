package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

func TestPagesOfAConfiguration(t *testing.T) {
	b := setup(t)
	const n = 7
	b.put(twoStages())
	var types, schedules, endpoints []string
	for i := range n {
		pipe := twoStages()
		pipe.Name = fmt.Sprintf("pipe%d", i)
		b.put(pipe)
		types = append(types, pipe.Name)
		name := fmt.Sprintf("s%d", i)
		_, _, err := b.PutSchedule(t.Context(), tenant, aSchedule(name, `"a context"`))
		require.NoError(t, err)
		schedules = append(schedules, name)
		e := anEndpoint(fmt.Sprintf("https://w%d.example.com/", i))
		e.Stage = []string{"first", "second"}[i*2/n]
		_, err = b.CreateEndpoint(t.Context(), tenant, e)
		require.NoError(t, err)
		endpoints = append(endpoints, e.ID)
	}
	types = append([]string{"pipe"}, types...)

	var gotTypes, gotSchedules, gotEndpoints []string
	for after, more := "", true; more; {
		page, further, err := b.TypePage(t.Context(), tenant, after, 3)
		require.NoError(t, err)
		require.True(t, len(page) == 3 || !further)
		for _, one := range page {
			gotTypes, after = append(gotTypes, one.Name), one.Name
		}
		more = further
	}
	for after, more := "", true; more; {
		page, further, err := b.SchedulePage(t.Context(), tenant, after, 2)
		require.NoError(t, err)
		for _, one := range page {
			require.Nil(t, one.Context)
			gotSchedules, after = append(gotSchedules, one.Name), one.Name
		}
		more = further
	}
	after := store.EndpointPlace{}
	for more := true; more; {
		page, further, err := b.EndpointPage(t.Context(), tenant, "pipe", after, 2)
		require.NoError(t, err)
		for _, one := range page {
			gotEndpoints, after = append(gotEndpoints, one.ID), store.PlaceOf(one)
		}
		more = further
	}
	require.Equal(t, types, gotTypes)
	require.Equal(t, schedules, gotSchedules)
	require.Equal(t, endpoints, gotEndpoints)
}

// A page is also full by its bytes, whatever the limit.
func TestPagesAreBoundedInBytes(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	const each = 300 << 10
	for i := range 9 {
		e := anEndpoint(fmt.Sprintf("https://w%d.example.com/", i))
		e.Outbound = make([]byte, each)
		_, err := b.CreateEndpoint(t.Context(), tenant, e)
		require.NoError(t, err)
	}
	seen, after := 0, store.EndpointPlace{}
	for more := true; more; {
		page, further, err := b.EndpointPage(t.Context(), tenant, "", after, 500)
		require.NoError(t, err)
		require.NotEmpty(t, page)
		require.LessOrEqual(t, len(page)*each, store.PageBytes+each)
		seen, more, after = seen+len(page), further, store.PlaceOf(page[len(page)-1])
	}
	require.Equal(t, 9, seen)
}

// attempted returns a task with n attempts, each with an output of the given size in bytes.
func (b *bundle) attempted(n, bytes int) asyncflow.TaskID {
	b.t.Helper()
	task := newTask(`{}`)
	b.put(twoStages())
	id := b.submit(task)[0].ID
	_, err := b.db.Exec(
		b.t.Context(),
		b.at(1, `INSERT INTO {journal} (type, id, seq, at, stage, attempt, outcome, output)
		SELECT {number}, $1, n, now(), 'first', n, 'failed', to_json(repeat('é', $3 / 2))
		FROM generate_series(1, $2::int) n`),
		id.Number,
		n,
		bytes,
	)
	require.NoError(b.t, err)
	return id
}

func TestAttemptsAreBoundedInBytes(t *testing.T) {
	b := setup(t)
	const each, n = 300 << 10, 40
	id := b.attempted(n, each)
	page, more, err := b.AttemptPage(t.Context(), tenant, id, store.AttemptPage{Limit: 500})
	require.NoError(t, err)
	require.False(t, more)
	require.Len(t, page, n)
	require.Nil(t, page[0].Output)
	require.Equal(t, each+2, page[0].LeftOut)
	require.Equal(t, `"`+strings.Repeat("é", 255), page[0].Excerpt)

	seen := 0
	for after, more := 0, true; more; {
		page, more, err = b.AttemptPage(
			t.Context(),
			tenant,
			id,
			store.AttemptPage{After: after, Limit: 500, Outputs: true},
		)
		require.NoError(t, err)
		bytes := 0
		for _, a := range page {
			require.Len(t, a.Output, each+2)
			require.Zero(t, a.LeftOut)
			bytes, after, seen = bytes+len(a.Output), a.Seq, seen+1
		}
		require.Positive(t, bytes)
		require.LessOrEqual(t, bytes, store.PageBytes+each+2)
	}
	require.Equal(t, n, seen)
	all, err := b.Attempts(t.Context(), tenant, id)
	require.NoError(t, err)
	require.Len(t, all, n)
}

func TestShortOutputsAreNotLeftOut(t *testing.T) {
	b := setup(t)
	id := b.attempted(5, store.ShortOutput-2)
	page, more, err := b.AttemptPage(t.Context(), tenant, id, store.AttemptPage{Limit: 4})
	require.NoError(t, err)
	require.True(t, more)
	require.Len(t, page, 4)
	require.Len(t, page[0].Output, store.ShortOutput)
	require.Empty(t, page[0].Excerpt)
}
