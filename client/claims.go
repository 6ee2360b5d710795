package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

type (
	// ClaimRequest asks for tasks of a stage with mode claim: Type, Stage and Claimer are required.
	// Held are the tasks that the claimer is working on. See [api.Claim] for its fields.
	ClaimRequest = api.Claim

	// ClaimAnswer is what a worker answered to a delivery that was passed on to it. See
	// [api.ClaimAnswer] for its fields.
	ClaimAnswer = api.ClaimAnswer

	// Delivery is a task as a worker gets it. See [api.Delivery] for its fields.
	Delivery = api.Delivery
)

type workerNameKey struct{}

// AsWorker returns a context for calls of Claim and ClaimSigned: they send the name of a worker,
// such as its host, which is shown with the tasks that it gets. It is up to 64 printable ASCII
// characters without spaces; any other name is not sent.
func AsWorker(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, workerNameKey{}, asyncflow.WorkerName(name))
}

// addWorker adds the name of a worker in a context to a claim.
func addWorker(ctx context.Context, r *http.Request) error {
	if name, _ := ctx.Value(workerNameKey{}).(string); name != "" {
		r.Header.Set(asyncflow.WorkerHeader, name)
	}
	return nil
}

// Claim asks for tasks, and waits for the first one for r.Wait. It may return none. The token needs
// the scope work. If the answer is lost, ask again: the claimer gets its open claims first, apart
// from the ones in r.Held. A claim ends after 15 s, unless there is a heartbeat, progress or a
// report: package worker offers a Reporter for these, and a loop around all of it.
func (c *Client) Claim(ctx context.Context, r ClaimRequest) ([]Delivery, error) {
	body, err := encode(r)
	if err != nil {
		return nil, err
	}
	list, err := call[api.ClaimList](ctx, c, r.Wait.Std(),
		func(ctx context.Context) (*http.Response, error) {
			return c.api.ClaimTasksWithBody(ctx, nil, "application/json", bytes.NewReader(body),
				addWorker)
		})
	return list.Claims, err
}

// SignedDelivery is a claimed task with the request that a push of it would be.
type SignedDelivery struct {
	Delivery
	Headers map[string]string
	Body    []byte
}

// ClaimSigned is Claim for programs that pass deliveries on to a worker, as asyncflow listen does.
// There must be an endpoint for listening in the stage: its secrets sign them. A delivery's
// deadline is that of a push: send a heartbeat before it is passed on.
func (c *Client) ClaimSigned(ctx context.Context, r ClaimRequest) ([]SignedDelivery, error) {
	r.Signed = true
	body, err := encode(r)
	if err != nil {
		return nil, err
	}
	type list struct {
		Claims  []json.RawMessage   `json:"claims"`
		Headers []map[string]string `json:"headers"`
	}
	got, err := call[list](ctx, c, r.Wait.Std(), func(ctx context.Context) (*http.Response, error) {
		return c.api.ClaimTasksWithBody(ctx, nil, "application/json", bytes.NewReader(body),
			addWorker)
	})
	if err != nil {
		return nil, err
	}
	if len(got.Claims) != len(got.Headers) {
		return nil, &ConnectionError{URL: c.url,
			Err: errors.New("it answered without headers; is it older than this program?")}
	}
	all := make([]SignedDelivery, len(got.Claims))
	for i, doc := range got.Claims {
		all[i].Headers, all[i].Body = got.Headers[i], doc
		if err := json.Unmarshal(doc, &all[i].Delivery); err != nil {
			return nil, &ConnectionError{URL: c.url,
				Err: fmt.Errorf("a delivery can't be read: %w", err)}
		}
	}
	return all, nil
}
