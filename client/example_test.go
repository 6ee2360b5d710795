package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/testnode"
	"github.com/asyncflow/asyncflow/worker"
)

// connect returns a client of a node that runs in this process. It serves a task type with one
// stage; its worker greets the person that the context names.
func connect(taskType string) *client.Client {
	node := testnode.Shared()
	c, err := client.New(node.URL, node.Token)
	check(err)
	_, err = c.PutTaskType(context.Background(), taskType,
		client.TaskTypeSpec{Stages: []client.Stage{{Name: "greet"}}})
	check(err)
	registration := worker.Registration{Client: c}
	w, err := worker.New(worker.Config{Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Registration: &registration})
	check(err)
	worker.Handle(w, taskType, "greet",
		func(_ context.Context, t worker.Task[string]) (string, error) {
			if t.Context == "" {
				return "", worker.Fail(errors.New("there is nobody to greet"))
			}
			return "hello, " + t.Context, nil
		})
	registration.URL = httptest.NewServer(w).URL
	check(w.Register(context.Background(), registration))
	return c
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Submit a task and wait for its end. With a key, the same task again is the first one.
func ExampleClient_Submit() {
	c := connect("hello") // client.New("https://tasks.example.com", token)
	ctx := context.Background()

	task, err := c.Submit(ctx,
		client.NewTask{Type: "hello", Context: client.JSON(`"Ada"`), Key: "welcome-42"})
	check(err)
	again, err := c.Submit(ctx,
		client.NewTask{Type: "hello", Context: client.JSON(`"Ada"`), Key: "welcome-42"})
	check(err)
	done, err := c.Wait(ctx, task.ID, time.Minute)
	check(err)
	fmt.Println(task.ID, again.ID)
	fmt.Println(done.Status, string(done.Result))
	// Output:
	// hello.1.1 hello.1.1
	// succeeded "hello, Ada"
}

// Each of many tasks gets its own result: a bad task doesn't keep the others from being accepted.
func ExampleClient_SubmitMany() {
	c := connect("many")

	results, err := c.SubmitMany(context.Background(), []client.NewTask{
		{Type: "many", Context: client.JSON(`"Ada"`)},
		{Type: "many", Context: client.JSON(`"Grace"`), Priority: client.Priority{-1}},
		{Type: "many", Context: client.JSON(`"Alan"`)},
	})
	check(err)
	for _, r := range results {
		fmt.Println(r.Task.Type, r.Err)
	}
	// Output:
	// many <nil>
	//  400 invalid_argument: priority is -1; it must be 0 to 31536000 seconds (a year)
	// many <nil>
}

// Follow a task until it is final. A connection that breaks is made again on the way.
func ExampleClient_Watch() {
	c := connect("watched")
	ctx := context.Background()
	task, err := c.Submit(ctx, client.NewTask{Type: "watched", Context: client.JSON(`""`)})
	check(err)

	var last client.Task
	for event, err := range c.Watch(ctx, task.ID) {
		check(err)
		if a := event.Attempt; a != nil {
			fmt.Println(a.Stage, a.Attempt, a.Outcome, a.Error)
		}
		if event.Task != nil {
			last = *event.Task
		}
	}
	fmt.Println(last.Status)
	// Output:
	// greet 1 rejected there is nobody to greet
	// failed
}

// Errors bear a code, and name the fields that are wrong.
func ExampleError() {
	c := connect("errors")

	_, err := c.Submit(context.Background(),
		client.NewTask{Type: "nothing", Context: client.JSON(`1`)})
	fmt.Println(asyncflow.CodeOf(err))

	_, err = c.Submit(context.Background(),
		client.NewTask{Type: "errors", Context: client.JSON(`1`),
			Delay: client.NewDuration(-time.Second)})
	var answer *client.Error
	if errors.As(err, &answer) {
		fmt.Println(answer.Status, answer.Problem.Errors[0].Field)
	}
	// Output:
	// not_found
	// 400 delay
}
