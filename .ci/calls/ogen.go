// Calls a node by the client that ogen makes.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"example.com/client/client"
	"github.com/ogen-go/ogen/ogenerrors"
)

const typ = "ogen"

func main() {
	log.SetFlags(0)
	if err := call(context.Background()); err != nil {
		log.Fatal(err)
	}
}

type tokens struct{}

func (tokens) BearerAuth(context.Context, client.OperationName) (client.BearerAuth, error) {
	return client.BearerAuth{Token: os.Getenv("ASYNCFLOW_TOKEN")}, nil
}

func (tokens) AdminToken(context.Context, client.OperationName) (client.AdminToken, error) {
	return client.AdminToken{}, ogenerrors.ErrSkipClientSecurity
}

func (tokens) CompletionToken(
	context.Context, client.OperationName,
) (client.CompletionToken, error) {
	return client.CompletionToken{}, ogenerrors.ErrSkipClientSecurity
}

func call(ctx context.Context) error {
	c, err := client.NewClient(os.Getenv("ASYNCFLOW_URL"), tokens{})
	if err != nil {
		return err
	}
	pauses := client.NewFloat64ArrayInterval([]float64{5, 30})
	retry := client.RetryPolicy{Interval: client.NewOptInterval(pauses)}
	put, err := c.PutTaskType(ctx, &client.TaskTypeSpec{Stages: []client.Stage{
		{Name: "inspect", Retry: client.NewOptRetryPolicy(retry)}}},
		client.PutTaskTypeParams{Type: typ})
	if err != nil {
		return err
	}
	if _, ok := put.(*client.PutTaskTypeCreated); !ok {
		return fmt.Errorf("putTaskType: %T %+v", put, put)
	}
	submitted, err := c.SubmitTask(ctx,
		&client.NewTask{Type: typ, Context: client.JSON(`{"image": "harbour.jpg"}`)},
		client.SubmitTaskParams{})
	if err != nil {
		return err
	}
	created, ok := submitted.(*client.SubmitTaskCreated)
	if !ok {
		return fmt.Errorf("submitTask: %T %+v", submitted, submitted)
	}
	id := created.Response.ID
	task, err := c.GetTask(ctx, client.GetTaskParams{ID: id})
	if err != nil {
		return err
	}
	if t, ok := task.(*client.Task); !ok || t.ID != id {
		return fmt.Errorf("getTask: %T %+v", task, task)
	}
	page, err := c.ListTasks(ctx, client.ListTasksParams{Type: typ})
	if err != nil {
		return err
	}
	if list, ok := page.(*client.TaskList); !ok || len(list.Data) != 1 || list.Data[0].ID != id {
		return fmt.Errorf("listTasks: %T %+v", page, page)
	}
	refused, err := c.SubmitTask(ctx, &client.NewTask{Type: "missing", Context: client.JSON("1")},
		client.SubmitTaskParams{})
	if err != nil {
		return err
	}
	p, ok := refused.(*client.SubmitTaskNotFound)
	if !ok || p.Code != client.ErrorCodeNotFound {
		return fmt.Errorf("submitTask of a missing type: %T %+v", refused, refused)
	}
	return nil
}
