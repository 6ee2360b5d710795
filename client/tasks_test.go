package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// The bytes of a context reach the server unchanged.
func TestSubmitKeepsTheContext(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Equal(t, `{"context":{"a":"<&>é\u00e9","n":1e400},"type":"t"}`, string(body))
		writeJSON(w, 201, taskN(1))
	})
	task, err := f.client(t).Submit(t.Context(),
		NewTask{Type: "t", Context: JSON(`{"a":"<&>é\u00e9", "n":1e400}`)})
	require.NoError(t, err)
	require.Equal(t, taskN(1), task)
	_, err = f.client(t).Submit(t.Context(), NewTask{Type: "t", Context: JSON(`{`)})
	require.EqualError(t, err, "context is not valid JSON")
}

func TestSubmitManyInBatches(t *testing.T) {
	t.Parallel()
	var sizes []int
	n := 0
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		var in api.NewTaskBatch
		require.NoError(t, json.NewDecoder(r.Body).Decode(&in))
		sizes = append(sizes, len(in.Tasks))
		var out api.SubmittedBatch
		for i, task := range in.Tasks {
			require.NoError(t, task.Err)
			if task.Type == "nope" {
				out.Tasks = append(out.Tasks,
					api.BatchResult{Error: Problem{Status: 400, Code: "invalid_argument",
						Detail: "type is bad",
						Errors: []FieldError{{Field: fmt.Sprintf("tasks[%d].type", i),
							Message: "is bad"}}}})
				continue
			}
			n++
			require.Equal(t, strconv.Itoa(n), string(task.Context))
			out.Tasks = append(out.Tasks, api.BatchResult{Task: taskN(n)})
		}
		writeJSON(w, 201, out)
	})
	tasks := make([]NewTask, 0, 2502)
	for i := range 2500 {
		tasks = append(tasks, NewTask{Type: "t", Context: JSON(strconv.Itoa(i + 1))})
		if i == 9 {
			tasks = append(tasks, NewTask{Type: "t", Context: JSON(`{`)},
				NewTask{Type: "nope", Context: JSON("0")})
		}
	}
	results, err := f.client(t).SubmitMany(t.Context(), tasks)
	require.NoError(t, err)
	require.Equal(t, []int{999, 1000, 502}, sizes)
	require.Len(t, results, len(tasks))
	require.EqualError(t, results[10].Err, "context is not valid JSON")
	var refused *Error
	require.ErrorAs(t, results[11].Err, &refused)
	require.Equal(t, "type", refused.Problem.Errors[0].Field)
	require.Equal(t, "t.1.10", results[9].Task.ID)
	require.Equal(t, "t.1.11", results[12].Task.ID)
	require.Equal(t, "t.1.2500", results[2501].Task.ID)
}

func TestSubmitManyInBatchesBySize(t *testing.T) {
	t.Parallel()
	most := 0
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		most = max(most, len(body))
		count := strings.Count(string(body), `"context"`)
		writeJSON(w, 201, api.SubmittedBatch{Tasks: make([]api.BatchResult, count)})
	})
	tasks := make([]NewTask, 100)
	for i := range tasks {
		tasks[i] = NewTask{Type: "t", Context: JSON(`"` + strings.Repeat("x", 256<<10-2) + `"`)}
	}
	results, err := f.client(t).SubmitMany(t.Context(), tasks)
	require.NoError(t, err)
	require.Len(t, results, 100)
	require.ErrorContains(t, results[0].Err, "says nothing about this task")
	require.Len(t, f.requests(), 4)
	require.LessOrEqual(t, most, maxBatchBytes)
}

func TestSubmitManyEndsAtTheFirstFailure(t *testing.T) {
	t.Parallel()
	tries := 0
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) {
		if tries++; tries == 2 {
			unavailable(w, "3")
			return
		}
		out := api.SubmittedBatch{}
		for n := range 1000 {
			out.Tasks = append(out.Tasks, api.BatchResult{Task: taskN(n)})
		}
		writeJSON(w, 201, out)
	})
	tasks := make([]NewTask, 3000)
	for i := range tasks {
		tasks[i] = NewTask{Type: "t", Context: JSON("1")}
	}
	results, err := f.client(t).SubmitMany(t.Context(), tasks)
	require.ErrorContains(t, err, "503")
	require.Len(t, results, 1000)
	require.Len(t, f.requests(), 2)
}

func TestWaitAsksUntilTheEnd(t *testing.T) {
	t.Parallel()
	tries := 0
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		wait, err := time.ParseDuration(r.URL.Query().Get("wait"))
		require.NoError(t, err)
		require.LessOrEqual(t, wait, asyncflow.MaxWait)
		status := StatusRunning
		if tries++; tries == 3 {
			status = StatusSucceeded
		}
		writeJSON(w, 200, Task{ID: "t.1.1", Status: status})
	})
	task, err := f.client(t).Wait(t.Context(), "t.1.1", 10*time.Minute)
	require.NoError(t, err)
	require.Equal(t, StatusSucceeded, task.Status)
	require.Len(t, f.requests(), 3)
}

// When the tenant's share of waiting calls is in use, Wait waits for it.
func TestWaitOverTheShare(t *testing.T) {
	t.Parallel()
	tries := 0
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		if tries++; tries < 3 {
			w.Header().Set("Content-Type", "application/problem+json")
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(429)
			io.WriteString(w,
				`{"type":"about:blank","title":"Too Many Requests","status":429,"code":"rate_limited"}`)
			return
		}
		writeJSON(w, 200, Task{ID: "t.1.1", Status: StatusSucceeded})
	})
	task, err := f.client(t).Wait(t.Context(), "t.1.1", 10*time.Minute)
	require.NoError(t, err)
	require.Equal(t, StatusSucceeded, task.Status)
	require.Len(t, f.requests(), 3)
}

// SubmitAndWait asks for the rest of the time when there is no final task in the answer.
func TestSubmitAndWait(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		wait, err := time.ParseDuration(r.URL.Query().Get("wait"))
		require.NoError(t, err)
		require.LessOrEqual(t, wait, asyncflow.MaxWait)
		if r.Method == http.MethodPost {
			require.NotContains(t, r.Header, "Idempotency-Key")
			writeJSON(w, 202, SubmittedTask{ID: "t.1.1", Type: "t", Stage: "s",
				Status: StatusRunning, Existing: true})
			return
		}
		writeJSON(w, 200, Task{ID: "t.1.1", Status: StatusSucceeded, Result: JSON(`[1]`)})
	})
	task, err := f.client(t).SubmitAndWait(t.Context(),
		NewTask{Type: "t", Context: JSON(`1`), Key: "k"}, 10*time.Minute)
	require.NoError(t, err)
	require.Equal(t, Task{ID: "t.1.1", Status: StatusSucceeded, Result: JSON(`[1]`),
		Existing: true}, task)
	require.Equal(t, []string{"POST /v1/tasks?wait=1m0s", "GET /v1/tasks/t.1.1?wait=1m0s"},
		f.requests())
	_, err = f.client(t).SubmitAndWait(t.Context(), NewTask{Type: "t", Context: JSON(`{`)}, 0)
	require.EqualError(t, err, "context is not valid JSON")
}

// When the tenant's share of waiting calls is in use, SubmitAndWait submits first.
func TestSubmitAndWaitOverTheShare(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Has("wait") && r.Method == http.MethodPost:
			writeProblem(w, Problem{Type: "about:blank", Title: "Too Many Requests", Status: 429,
				Code: "rate_limited"})
		case r.Method == http.MethodPost:
			writeJSON(w, 201, taskN(7))
		default:
			writeJSON(w, 200, Task{ID: "t.1.7", Status: StatusFailed})
		}
	})
	task, err := f.client(t).SubmitAndWait(t.Context(), NewTask{Type: "t", Context: JSON(`1`)},
		time.Hour)
	require.NoError(t, err)
	require.Equal(t, "t.1.7", task.ID)
	require.Equal(t, StatusFailed, task.Status)
}

// A server that answers at once isn't flooded, and Wait ends in time.
func TestWaitEnds(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, 200, Task{ID: "t.1.1", Status: StatusPending})
	})
	task, err := f.client(t).Wait(t.Context(), "t.1.1", 600*time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, StatusPending, task.Status)
	require.LessOrEqual(t, len(f.requests()), 5)

	ctx, cancel := context.WithCancel(t.Context())
	var asked atomic.Int32
	again := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) > 1 { // it holds the first answer when it asks again
			cancel()
			<-r.Context().Done()
			return
		}
		writeJSON(w, 200, Task{ID: "t.1.1", Status: StatusPending})
	})
	task, err = again.client(t).Wait(ctx, "t.1.1", 0)
	require.NoError(t, err)
	require.Equal(t, StatusPending, task.Status)
}

// The client's timeout doesn't count the time that the server was asked to wait.
func TestWaitIsNotCutByTheTimeout(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done(): // the client gave up
		case <-time.After(300 * time.Millisecond):
			writeJSON(w, 200, Task{ID: "t.1.1", Status: StatusFailed})
		}
	})
	task, err := f.client(t, WithTimeout(100*time.Millisecond)).Wait(t.Context(), "t.1.1",
		10*time.Second)
	require.NoError(t, err)
	require.Equal(t, StatusFailed, task.Status)
}

// Parameters that aren't set are not sent: the server would refuse them.
func TestListParams(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, 200, TaskList{Data: []Task{}})
	})
	c, ctx := f.client(t), t.Context()
	_, err := c.List(ctx, ListParams{Type: "t"})
	require.NoError(t, err)
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	_, err = c.List(ctx,
		ListParams{Type: "t", Status: StatusFailed, Since: at, Until: at.Add(time.Millisecond),
			Limit:  7,
			Cursor: "a b", Parent: "t.1.2", Key: "k&", Text: "50% a=b", Reverse: true})
	require.NoError(t, err)
	_, err = c.List(ctx, ListParams{Type: "t", Children: new(bool)})
	require.NoError(t, err)
	_, err = c.Endpoints(ctx, "")
	require.NoError(t, err)
	_, err = c.Get(ctx, "t.1.1")
	require.NoError(t, err)
	_, err = c.Results(ctx, "t.1.1", 0)
	require.NoError(t, err)
	_, err = c.Results(ctx, "t.1.1", 7)
	require.NoError(t, err)
	require.Equal(t, []string{
		"GET /v1/tasks?type=t",
		"GET /v1/tasks?cursor=a+b&key=k%26&limit=7&parent=t.1.2&reverse=true" +
			"&since=2026-11-21T10%3A00%3A00Z&status=failed&text=50%25+a%3Db&type=t&until=2026-11-21T10%3A00%3A00.001Z",
		"GET /v1/tasks?children=false&type=t",
		"GET /v1/endpoints",
		"GET /v1/tasks/t.1.1",
		"GET /v1/tasks/t.1.1/results?fan_out=0&from=0&limit=1000",
		"GET /v1/tasks/t.1.1/results?fan_out=0&from=7&limit=1000",
	}, f.requests())
}

// Each parameter of a list is sent: one that got lost would list other tasks, or in another order.
func TestEachListParamIsSent(t *testing.T) {
	t.Parallel()
	var sent url.Values
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		sent = r.URL.Query()
		writeJSON(w, 200, TaskList{Data: []Task{}})
	})
	var p ListParams
	all := reflect.ValueOf(&p).Elem()
	for i := range all.NumField() {
		switch field := all.Field(i).Addr().Interface().(type) {
		case *time.Time:
			*field = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
		case **bool:
			*field = new(bool)
		case *bool:
			*field = true
		case *int:
			*field = 3
		default:
			all.Field(i).SetString("x")
		}
	}
	_, err := f.client(t).List(t.Context(), p)
	require.NoError(t, err)
	for field := range reflect.TypeFor[ListParams]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		require.NotEmpty(t, sent.Get(name), "the parameter %s", name)
	}
}

func TestAllGoesThroughThePages(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("cursor") {
		case "":
			writeJSON(w, 200, TaskList{Data: []Task{{ID: "1"}, {ID: "2"}}, NextCursor: "a"})
		case "a":
			writeJSON(w, 200, TaskList{Data: []Task{{ID: "3"}}, NextCursor: "b"})
		default:
			writeProblem(w, Problem{Status: 400, Code: "invalid_argument", Detail: "no more"})
		}
	})
	var ids []string
	var failed error
	for task, err := range f.client(t).All(t.Context(), ListParams{Type: "t"}) {
		if failed = err; err == nil {
			ids = append(ids, task.ID)
		}
	}
	require.Equal(t, []string{"1", "2", "3"}, ids)
	require.ErrorContains(t, failed, "no more")
	for range f.client(t).All(t.Context(), ListParams{Type: "t"}) {
		break
	}
	require.Len(t, f.requests(), 4)
}
