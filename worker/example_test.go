package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/testnode"
	"github.com/asyncflow/asyncflow/worker"
)

// The examples use a node that runs in this process.
func connect(taskType string, stages ...string) *client.Client {
	node := testnode.Shared()
	c, err := client.New(node.URL, node.Token)
	check(err)
	spec := client.TaskTypeSpec{}
	for _, name := range stages {
		spec.Stages = append(spec.Stages,
			client.Stage{Name: name,
				Retry: client.RetryPolicy{MaxAttempts: 3, Interval: client.Seconds(-0.1)}})
	}
	_, err = c.PutTaskType(context.Background(), taskType, spec)
	check(err)
	return c
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// run submits a task, waits for its end and prints the result.
func run(c *client.Client, taskType, doc string) {
	task, err := c.Submit(context.Background(),
		client.NewTask{Type: taskType, Context: client.JSON(doc)})
	check(err)
	done, err := c.Wait(context.Background(), task.ID, time.Minute)
	check(err)
	attempts, err := c.Attempts(context.Background(), task.ID)
	check(err)
	for _, a := range attempts {
		fmt.Println(strings.TrimSpace(fmt.Sprintln(a.Stage, a.Attempt, a.Outcome, a.Error)))
	}
	fmt.Println(strings.TrimSpace(fmt.Sprintln(done.Status, string(done.Result))))
}

var quiet = slog.New(slog.DiscardHandler)

type Order struct {
	Items []string `json:"items"`
}

type Invoice struct {
	Total int `json:"total"`
}

// A worker with two stages that registers itself. The output of the first stage is the context of
// the second.
func Example() {
	c := connect("orders", "price", "send") // client.New("https://tasks.example.com", token)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)

	w, err := worker.New(worker.Config{Log: quiet,
		Registration: &worker.Registration{Client: c, URL: "http://" + l.Addr().String()}})
	check(err)
	worker.Handle(w, "orders", "price",
		func(_ context.Context, t worker.Task[Order]) (Invoice, error) {
			return Invoice{Total: 10 * len(t.Context.Items)}, nil
		})
	worker.Handle(w, "orders", "send",
		func(_ context.Context, t worker.Task[Invoice]) (string, error) {
			return fmt.Sprintf("%d sent", t.Context.Total), nil
		})
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- w.Serve(ctx, l) }() // or w.ListenAndServe(ctx, ":9000")

	task, err := c.Submit(ctx,
		client.NewTask{Type: "orders", Context: client.JSON(`{"items": ["pen", "ink"]}`)})
	check(err)
	done, err := c.Wait(ctx, task.ID, time.Minute)
	check(err)
	fmt.Println(done.Status, string(done.Result))
	stop()
	fmt.Println(<-served)
	// Output:
	// succeeded "20 sent"
	// <nil>
}

// The error of a handler decides how the task goes on.
func ExampleHandle() {
	c := connect("errors", "work")
	w, err := worker.New(worker.Config{Keys: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
		Log: quiet})
	check(err)
	worker.Handle(w, "errors", "work",
		func(ctx context.Context, t worker.Task[string]) (worker.None, error) {
			switch {
			case t.Context == "broken":
				return worker.None{}, worker.Fail(errors.New("no attempt could do better"))
			case t.Attempt == 1:
				return worker.None{}, errors.New("tried again, as the retry policy has it")
			case t.Attempt == 2:
				return worker.None{},
					worker.Retry(errors.New("tried again, after a second at least"), time.Second)
			}
			return worker.None{}, nil // done, without an output
		})
	defer serve(w, c)()

	run(c, "errors", `"broken"`)
	run(c, "errors", `"shaky"`)
	// Output:
	// work 1 rejected no attempt could do better
	// failed
	// work 1 failed tried again, as the retry policy has it
	// work 2 failed tried again, after a second at least
	// work 3 done
	// succeeded "shaky"
}

// serve serves a worker by an http.Server of the program's own, registers it, and returns a
// function that stops it.
func serve(w *worker.Worker, c *client.Client) (stop func()) {
	mux := http.NewServeMux()
	mux.Handle("/asyncflow", w)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	go server.Serve(l)
	check(w.Register(context.Background(),
		worker.Registration{Client: c, URL: "http://" + l.Addr().String() + "/asyncflow"}))
	return func() { // first no more requests, then no more work
		check(server.Shutdown(context.Background()))
		check(w.Close(context.Background()))
	}
}

// A handler may leave the completion to somebody else: here a person approves by hand, with the
// stored Callback.
func ExampleReporter() {
	c := connect("approvals", "ask")
	w, err := worker.New(worker.Config{Keys: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
		Log: quiet})
	check(err)
	kept := make(chan []byte, 1) // a table, rather
	worker.Handle(w, "approvals", "ask",
		func(_ context.Context, t worker.Task[string]) (string, error) {
			callback, err := json.Marshal(t.Callback)
			if err != nil {
				return "", err
			}
			kept <- callback
			return "", worker.Later
		})
	defer serve(w, c)()

	go func() {
		var callback worker.Callback
		check(json.Unmarshal(<-kept, &callback))
		check(worker.NewReporter(nil).Complete(context.Background(), callback, "approved"))
	}()
	run(c, "approvals", `"a new chair"`)
	// Output:
	// ask 1 done
	// succeeded "approved"
}

// A handler that gets tasks together, from an endpoint that is registered for batches.
func ExampleHandleBatch() {
	c := connect("rows", "insert")
	w, err := worker.New(worker.Config{Keys: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
		Log: quiet})
	check(err)
	worker.HandleBatch(w, "rows", "insert",
		func(_ context.Context, tasks []worker.Task[string]) []worker.Result[string] {
			results := make([]worker.Result[string], len(tasks))
			for i, t := range tasks {
				results[i].Output = "inserted " + t.Context // all in one transaction
			}
			return results
		})
	defer serve(w, c)()

	run(c, "rows", `"a row"`)
	// Output:
	// insert 1 done
	// succeeded "inserted a row"
}
