// Makes the calls of docs/generated-clients.md by the client that oapi-codegen makes.
package main

import (
	"context"
	"log"
	"net/http"
	"os"
	"reflect"
	"time"

	"example.com/client"
)

const typ = "oapi-codegen"

var ctx = context.Background()

func main() {
	log.SetFlags(log.Lshortfile)
	c := connect(os.Getenv("ASYNCFLOW_TOKEN"))
	putTaskType(c)
	first, second := submitTasks(c)
	readTask(c, first)
	listTasks(c, first, second)
	refusedCalls(c)
	deleteAll(c, first, second)
}

func connect(token string) *client.ClientWithResponses {
	bearer := func(_ context.Context, req *http.Request) error {
		req.Header.Set("Authorization", "Bearer "+token)
		return nil
	}
	c, err := client.NewClientWithResponses(os.Getenv("ASYNCFLOW_URL"),
		client.WithRequestEditorFn(bearer))
	check(err)
	return c
}

func putTaskType(c *client.ClientWithResponses) {
	var list, number, text client.Interval
	check(list.FromInterval1([]float64{5, 30.5}))
	check(number.FromInterval0(-10))
	check(text.FromInterval2("poly"))
	var children client.ChildFailure
	var tolerate client.ChildFailure1
	tolerate.Tolerate.Percent = pointer(2.5)
	check(children.FromChildFailure1(tolerate))
	var kept client.Retention
	check(kept.FromRetention0("720h"))
	spec := client.TaskTypeSpec{Retention: &kept, Stages: []client.Stage{
		{Name: "inspect", Timeout: pointer("90s"), MaxProcessingTime: pointer("90m"),
			Retry: &client.RetryPolicy{MaxAttempts: pointer(3), Interval: &list}},
		{Name: "pages", Retry: &client.RetryPolicy{Interval: &number},
			FanOut: &client.FanOut{Items: pointer("/pages"), OnChildFailure: &children}},
		{Name: "resize", Retry: &client.RetryPolicy{Interval: &text}},
	}}
	put, err := c.PutTaskTypeWithResponse(ctx, typ, nil, spec)
	check(err)
	equal(put.JSON201.Version, 1)
	put, err = c.PutTaskTypeWithResponse(ctx, typ, nil, spec) // changes nothing
	check(err)
	equal(put.JSON200.Version, 1)

	got, err := c.GetTaskTypeWithResponse(ctx, typ)
	check(err)
	stages := got.JSON200.Stages
	equal(value(got.JSON200.Retention.AsRetention0()), "720h")
	equal(*stages[0].Timeout, "90s")
	equal(*stages[0].MaxProcessingTime, "90m")
	equal(value(stages[0].Retry.Interval.AsInterval1()), []float64{5, 30.5})
	equal(value(stages[1].Retry.Interval.AsInterval0()), -10.0)
	equal(value(stages[2].Retry.Interval.AsInterval2()), "poly")
	read := value(stages[1].FanOut.OnChildFailure.AsChildFailure1())
	equal(*read.Tolerate.Percent, 2.5)
}

func submitTasks(c *client.ClientWithResponses) (first, second string) {
	var priority client.Priority
	check(priority.FromPriority1([]int{60, 0, 0}))
	delayed, err := c.SubmitTaskWithResponse(ctx, nil, client.NewTask{Type: typ,
		Context: map[string]any{"image": "harbour.jpg", "tags": []string{}},
		Delay:   pointer("1h"), Priority: &priority})
	check(err)
	equal(delayed.JSON201.Status, client.StatusWaiting)
	runAt := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	timed, err := c.SubmitTaskWithResponse(ctx, nil,
		client.NewTask{Type: typ, Context: 1, RunAt: &runAt})
	check(err)
	equal(timed.JSON201.OrderTime.UTC(), runAt)
	return delayed.JSON201.Id, timed.JSON201.Id
}

func readTask(c *client.ClientWithResponses, id string) {
	got, err := c.GetTaskWithResponse(ctx, id, nil)
	check(err)
	task := got.JSON200
	equal(task.Id, id)
	equal[any](*task.Context, map[string]any{"image": "harbour.jpg", "tags": []any{}})
	equal(value(task.Priority.AsPriority1()), []int{60, 0, 0})
	equal(time.Since(task.CreatedAt) < time.Hour, true)
}

func listTasks(c *client.ClientWithResponses, first, second string) {
	since := time.Now().Add(-time.Hour)
	p := client.ListTasksParams{Type: pointer(client.Name(typ)),
		Status: pointer(client.StatusWaiting), Since: &since,
		Limit: pointer(1)}
	newest, err := c.ListTasksWithResponse(ctx, &p)
	check(err)
	equal(ids(newest.JSON200), []string{second})
	p.Cursor = newest.JSON200.NextCursor
	oldest, err := c.ListTasksWithResponse(ctx, &p)
	check(err)
	equal(ids(oldest.JSON200), []string{first})
	p = client.ListTasksParams{Type: pointer(client.Name(typ)),
		Status: pointer(client.StatusSucceeded)}
	none, err := c.ListTasksWithResponse(ctx, &p)
	check(err)
	equal(len(none.JSON200.Data), 0)
}

func ids(list *client.TaskList) (all []string) {
	for _, task := range list.Data {
		all = append(all, task.Id)
	}
	return all
}

func refusedCalls(c *client.ClientWithResponses) {
	runAt := time.Now()
	twice, err := c.SubmitTaskWithResponse(ctx, nil,
		client.NewTask{Type: typ, Context: 1, RunAt: &runAt, Delay: pointer("1h")})
	check(err)
	problem(twice.ApplicationproblemJSON400, client.ErrorCodeInvalidArgument, "delay")
	missing, err := c.SubmitTaskWithResponse(ctx, nil,
		client.NewTask{Type: "missing", Context: 1})
	check(err)
	problem(missing.ApplicationproblemJSON404, client.ErrorCodeNotFound, "type")
	page, err := c.ListTasksWithResponse(ctx,
		&client.ListTasksParams{Type: pointer(client.Name(typ)), Cursor: pointer("none")})
	check(err)
	problem(page.ApplicationproblemJSON400, client.ErrorCodeInvalidArgument, "cursor")
	live, err := c.DeleteTaskTypeWithResponse(ctx, typ, nil)
	check(err)
	problem(live.ApplicationproblemJSON409, client.ErrorCodeConflict, "")
	stranger, err := connect("none").GetTaskTypeWithResponse(ctx, typ)
	check(err)
	problem(stranger.ApplicationproblemJSON401, client.ErrorCodeUnauthenticated, "")
}

func deleteAll(c *client.ClientWithResponses, tasks ...string) {
	for _, id := range tasks {
		done, err := c.CancelTaskWithResponse(ctx, id, client.Cancellation{Reason: pointer("over")})
		check(err)
		equal(done.JSON200.Status, client.StatusCancelled)
	}
	deleted, err := c.DeleteTaskTypeWithResponse(ctx, typ, nil)
	check(err)
	equal(deleted.StatusCode(), http.StatusNoContent)
	gone, err := c.GetTaskTypeWithResponse(ctx, typ)
	check(err)
	problem(gone.ApplicationproblemJSON404, client.ErrorCodeNotFound, "type")
}

// problem checks the code of a problem, and the field that it names.
func problem(p *client.Problem, code client.ErrorCode, field string) {
	if p == nil {
		log.Panicf("there is no problem, want %s", code)
	}
	got := ""
	if p.Errors != nil {
		got = (*p.Errors)[0].Field
	}
	equal([]string{string(p.Code), got}, []string{string(code), field})
}

func pointer[T any](value T) *T { return &value }

func value[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func equal[T any](got, want T) {
	if !reflect.DeepEqual(got, want) {
		log.Panicf("got %+v, want %+v", got, want)
	}
}
