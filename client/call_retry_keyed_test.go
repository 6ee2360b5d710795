package client

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// Submits of tasks with keys are retried, each time with the same body, when the connection breaks,
// and when the server is uncertain or unavailable.
func TestKeyedSubmitsAreRetried(t *testing.T) {
	t.Parallel()
	var bodies []string
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		var body json.RawMessage
		require.NoError(t, json.NewDecoder(r.Body).Decode(&body))
		switch bodies = append(bodies, string(body)); len(bodies) % 3 {
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			writeProblem(w, Problem{Status: 503, Code: string(asyncflow.CodeUncertain)})
		default:
			if r.URL.Path == "/v1/tasks" {
				writeJSON(w, 201, taskN(7))
				return
			}
			writeJSON(w, 201, api.SubmittedBatch{Tasks: []api.BatchResult{{Task: taskN(8)}}})
		}
	})
	task := NewTask{Type: "t", Context: JSON(`{"a":"<"}`), Key: "order-1"}
	one, err := f.client(t).Submit(t.Context(), task)
	require.NoError(t, err)
	require.Equal(t, taskN(7), one)
	many, err := f.client(t).SubmitMany(t.Context(), []NewTask{task})
	require.NoError(t, err)
	require.Equal(t, []Result{{Task: taskN(8)}}, many)
	require.Len(t, bodies, 6)
	require.Equal(t, []string{bodies[0], bodies[0]}, bodies[1:3])
	require.Equal(t, []string{bodies[3], bodies[3]}, bodies[4:])
	require.Contains(t, bodies[0], `"a":"<"`)
}

// A batch isn't retried with one task that wouldn't be found again by its key.
func TestBatchesWithoutAKeyAreNotRetried(t *testing.T) {
	t.Parallel()
	for name, task := range map[string]NewTask{
		"no key":  {},
		"reject":  {Key: "a", OnConflict: asyncflow.ConflictReject},
		"cancel":  {Key: "a", OnConflict: asyncflow.ConflictCancel},
		"replace": {Key: "a", OnConflict: asyncflow.ConflictReplace},
		"final":   {Key: "a", KeyWindow: asyncflow.KeyUntilFinal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, func(w http.ResponseWriter, _ *http.Request) { unavailable(w, "0") })
			task.Type = "t"
			task.Context = JSON("1")
			_, err := f.client(t).SubmitMany(t.Context(),
				[]NewTask{{Type: "t", Context: JSON("1"), Key: "k"}, task})
			require.ErrorContains(t, err, "503")
			require.Len(t, f.requests(), 1)
		})
	}
}

// The last error doesn't hide that an earlier try may have taken effect.
func TestUncertainAfterRetries(t *testing.T) {
	t.Parallel()
	task := NewTask{Type: "t", Context: JSON("1"), Key: "k"}
	for name, c := range map[string]struct {
		first http.HandlerFunc
		want  bool
	}{
		"broken off": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			true},
		"uncertain": {func(w http.ResponseWriter, _ *http.Request) {
			writeProblem(w, Problem{Status: 503, Code: string(asyncflow.CodeUncertain)})
		}, true},
		"unavailable": {func(w http.ResponseWriter, _ *http.Request) { unavailable(w, "0") },
			false},
	} {
		t.Run(name, func(t *testing.T) {
			tries := 0
			f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
				if tries++; tries == 1 {
					c.first(w, r)
					return
				}
				unavailable(w, "0")
			})
			_, err := f.client(t, WithRetries(1)).Submit(t.Context(), task)
			require.ErrorContains(t, err, "503 unavailable")
			require.Equal(t, c.want, Uncertain(err))
			var answer *Error
			require.ErrorAs(t, err, &answer)
			require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err))
			require.Len(t, f.requests(), 2)
		})
	}
}
