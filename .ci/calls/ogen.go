// Makes the calls of docs/generated-clients.md by the client that ogen makes.
package main

import (
	"context"
	"log"
	"os"
	"reflect"
	"time"

	"example.com/client/client"
	"github.com/ogen-go/ogen/ogenerrors"
)

const typ = "ogen"

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

// token is what all calls here carry; calls with the contract's other kinds of token aren't made.
type token string

func (t token) BearerAuth(context.Context, client.OperationName) (client.BearerAuth, error) {
	return client.BearerAuth{Token: string(t)}, nil
}

func (token) AdminToken(context.Context, client.OperationName) (client.AdminToken, error) {
	return client.AdminToken{}, ogenerrors.ErrSkipClientSecurity
}

func (token) CompletionToken(
	context.Context, client.OperationName,
) (client.CompletionToken, error) {
	return client.CompletionToken{}, ogenerrors.ErrSkipClientSecurity
}

func connect(t string) *client.Client {
	return value(client.NewClient(os.Getenv("ASYNCFLOW_URL"), token(t)))
}

func putTaskType(c *client.Client) {
	list := client.NewFloat64ArrayInterval([]float64{5, 30.5})
	number := client.NewFloat64Interval(-10)
	text := client.NewStringInterval("poly")
	tolerate := client.NewChildFailure1ChildFailure(client.ChildFailure1{
		Tolerate: client.ChildTolerance{Percent: client.NewOptFloat64(2.5)}})
	kept := client.NewOptRetention(client.NewStringRetention("720h"))
	spec := client.TaskTypeSpec{Retention: kept, Stages: []client.Stage{
		{Name: "inspect", Timeout: duration("90s"), MaxProcessingTime: duration("90m"),
			Retry: retry(list)},
		{Name: "pages", Retry: retry(number),
			FanOut: client.NewOptFanOut(client.FanOut{Items: client.NewOptString("/pages"),
				OnChildFailure: client.NewOptChildFailure(tolerate)})},
		{Name: "resize", Retry: retry(text)},
	}}
	p := client.PutTaskTypeParams{Type: typ}
	created := value(c.PutTaskType(ctx, &spec, p)).(*client.PutTaskTypeCreated)
	equal(created.Response.Version, 1)
	same := value(c.PutTaskType(ctx, &spec, p)).(*client.PutTaskTypeOK) // changes nothing
	equal(same.Response.Version, 1)

	got := value(c.GetTaskType(ctx, client.GetTaskTypeParams{Type: typ})).(*client.TaskTypeHeaders)
	stages := got.Response.Stages
	equal(got.Response.Retention, kept)
	equal(stages[0].Timeout, duration("90s"))
	equal(stages[0].MaxProcessingTime, duration("90m"))
	equal(stages[0].Retry.Value.Interval.Value, list)
	equal(stages[1].Retry.Value.Interval.Value, number)
	equal(stages[2].Retry.Value.Interval.Value, text)
	equal(stages[1].FanOut.Value.OnChildFailure.Value, tolerate)
}

func duration(text client.Duration) client.OptDuration { return client.NewOptDuration(text) }

func retry(interval client.Interval) client.OptRetryPolicy {
	return client.NewOptRetryPolicy(client.RetryPolicy{Interval: client.NewOptInterval(interval)})
}

func submitTasks(c *client.Client) (first, second string) {
	task := client.NewTask{Type: typ, Context: client.JSON(`{"image":"harbour.jpg","tags":[]}`),
		Delay:    duration("1h"),
		Priority: client.NewOptPriority(client.NewIntArrayPriority([]int{60, 0, 0}))}
	delayed := submit(c, task)
	equal(delayed.Status, client.StatusWaiting)
	runAt := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	timed := submit(c, client.NewTask{Type: typ, Context: client.JSON(`1`),
		RunAt: client.NewOptDateTime(runAt)})
	equal(timed.OrderTime.Value.UTC(), runAt)
	return delayed.ID, timed.ID
}

func submit(c *client.Client, task client.NewTask) client.SubmittedTask {
	answer := value(c.SubmitTask(ctx, &task, client.SubmitTaskParams{}))
	return answer.(*client.SubmitTaskCreated).Response
}

func readTask(c *client.Client, id string) {
	task := value(c.GetTask(ctx, client.GetTaskParams{ID: id})).(*client.Task)
	equal(task.ID, id)
	equal(string(task.Context), `{"image":"harbour.jpg","tags":[]}`)
	equal(task.Priority.Value.IntArray, []int{60, 0, 0})
	equal(time.Since(task.CreatedAt) < time.Hour, true)
}

func listTasks(c *client.Client, first, second string) {
	p := client.ListTasksParams{Type: client.NewOptName(typ), Limit: client.NewOptInt(1),
		Status: client.NewOptStatus(client.StatusWaiting),
		Since:  client.NewOptDateTime(time.Now().Add(-time.Hour))}
	newest := value(c.ListTasks(ctx, p)).(*client.TaskList)
	equal(ids(newest), []string{second})
	p.Cursor = newest.NextCursor
	oldest := value(c.ListTasks(ctx, p)).(*client.TaskList)
	equal(ids(oldest), []string{first})
	p = client.ListTasksParams{Type: client.NewOptName(typ),
		Status: client.NewOptStatus(client.StatusSucceeded)}
	none := value(c.ListTasks(ctx, p)).(*client.TaskList)
	equal(len(none.Data), 0)
}

func ids(list *client.TaskList) (all []string) {
	for _, task := range list.Data {
		all = append(all, task.ID)
	}
	return all
}

func refusedCalls(c *client.Client) {
	twice := value(c.SubmitTask(ctx, &client.NewTask{Type: typ, Context: client.JSON(`1`),
		RunAt: client.NewOptDateTime(time.Now()), Delay: duration("1h")},
		client.SubmitTaskParams{})).(*client.SubmitTaskBadRequest)
	problem(client.Problem(*twice), client.ErrorCodeInvalidArgument, "delay")
	missing := value(c.SubmitTask(ctx, &client.NewTask{Type: "missing", Context: client.JSON(`1`)},
		client.SubmitTaskParams{})).(*client.SubmitTaskNotFound)
	problem(client.Problem(*missing), client.ErrorCodeNotFound, "type")
	page := value(c.ListTasks(ctx, client.ListTasksParams{Type: client.NewOptName(typ),
		Cursor: client.NewOptString("none")})).(*client.ListTasksBadRequest)
	problem(client.Problem(*page), client.ErrorCodeInvalidArgument, "cursor")
	live := value(c.DeleteTaskType(ctx,
		client.DeleteTaskTypeParams{Type: typ})).(*client.DeleteTaskTypeConflict)
	problem(client.Problem(*live), client.ErrorCodeConflict, "")
	stranger := value(connect("none").GetTaskType(ctx,
		client.GetTaskTypeParams{Type: typ})).(*client.UnauthenticatedHeaders)
	problem(stranger.Response, client.ErrorCodeUnauthenticated, "")
}

func deleteAll(c *client.Client, tasks ...string) {
	for _, id := range tasks {
		reason := client.Cancellation{Reason: client.NewOptString("over")}
		task := value(c.CancelTask(ctx, client.NewOptCancellation(reason),
			client.CancelTaskParams{ID: id})).(*client.Task)
		equal(task.Status, client.StatusCancelled)
	}
	deleted := value(c.DeleteTaskType(ctx, client.DeleteTaskTypeParams{Type: typ}))
	_ = deleted.(*client.DeleteTaskTypeNoContent)
	gone := value(c.GetTaskType(ctx,
		client.GetTaskTypeParams{Type: typ})).(*client.GetTaskTypeNotFound)
	problem(client.Problem(*gone), client.ErrorCodeNotFound, "type")
}

// problem checks the code of a problem, and the field that it names.
func problem(p client.Problem, code client.ErrorCode, field string) {
	got := ""
	if len(p.Errors) > 0 {
		got = p.Errors[0].Field
	}
	equal([]string{string(p.Code), got}, []string{string(code), field})
}

func value[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func equal[T any](got, want T) {
	if !reflect.DeepEqual(got, want) {
		log.Panicf("got %+v, want %+v", got, want)
	}
}
