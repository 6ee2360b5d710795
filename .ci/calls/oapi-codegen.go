// Calls a node by the client that oapi-codegen makes.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"

	"example.com/client"
)

const typ = "oapi-codegen"

func main() {
	log.SetFlags(0)
	if err := call(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func call(ctx context.Context) error {
	bearer := func(_ context.Context, req *http.Request) error {
		req.Header.Set("Authorization", "Bearer "+os.Getenv("ASYNCFLOW_TOKEN"))
		return nil
	}
	c, err := client.NewClientWithResponses(os.Getenv("ASYNCFLOW_URL"),
		client.WithRequestEditorFn(bearer))
	if err != nil {
		return err
	}
	var pauses client.Interval
	if err := pauses.FromInterval1([]float64{5, 30}); err != nil {
		return err
	}
	put, err := c.PutTaskTypeWithResponse(ctx, typ, nil, client.TaskTypeSpec{Stages: []client.Stage{
		{Name: "inspect", Retry: &client.RetryPolicy{Interval: &pauses}}}})
	if err != nil {
		return err
	}
	if put.JSON201 == nil || put.JSON201.Stages[0].Name != "inspect" {
		return fmt.Errorf("putTaskType: %s %s", put.Status(), put.Body)
	}
	submitted, err := c.SubmitTaskWithResponse(ctx, nil,
		client.NewTask{Type: typ, Context: map[string]string{"image": "harbour.jpg"}})
	if err != nil {
		return err
	}
	if submitted.JSON201 == nil {
		return fmt.Errorf("submitTask: %s %s", submitted.Status(), submitted.Body)
	}
	id := submitted.JSON201.Id
	task, err := c.GetTaskWithResponse(ctx, id, nil)
	if err != nil {
		return err
	}
	if task.JSON200 == nil || task.JSON200.Id != id {
		return fmt.Errorf("getTask: %s %s", task.Status(), task.Body)
	}
	list, err := c.ListTasksWithResponse(ctx, &client.ListTasksParams{Type: typ})
	if err != nil {
		return err
	}
	if list.JSON200 == nil || len(list.JSON200.Data) != 1 || list.JSON200.Data[0].Id != id {
		return fmt.Errorf("listTasks: %s %s", list.Status(), list.Body)
	}
	refused, err := c.SubmitTaskWithResponse(ctx, nil,
		client.NewTask{Type: "missing", Context: 1})
	if err != nil {
		return err
	}
	p := refused.ApplicationproblemJSON404
	if p == nil || p.Code != client.ErrorCodeNotFound {
		return fmt.Errorf("submitTask of a missing type: %s %s", refused.Status(), refused.Body)
	}
	return nil
}
