package client

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTaskTypeRolls(t *testing.T) {
	t.Parallel()
	opened := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	want := RollList{Data: []Roll{{Position: 2, Own: true, OpenedAt: opened, Bytes: 8192,
		TasksEstimate: 7, Retention: NewDuration(time.Hour), NextTasks: 1000}}, Older: 3}
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, want) })
	rolls, err := f.client(t).TaskTypeRolls(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, want, rolls)
	require.Equal(t, []string{"GET /v1/task-types/t/rolls"}, f.requests())
}
