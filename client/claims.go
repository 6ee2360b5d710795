package client

import (
	"bytes"
	"context"
	"net/http"

	"github.com/asyncflow/asyncflow/client/api"
)

type (
	// ClaimRequest asks for tasks of a stage with mode claim: Type, Stage and Claimer are required. Held
	// are the tasks that the claimer is working on. See [api.Claim] for its fields.
	ClaimRequest = api.Claim

	// Delivery is a task as a worker gets it. See [api.Delivery] for its fields.
	Delivery = api.Delivery
)

// Claim asks for tasks, and waits for the first one for r.Wait. It may return none. The token needs
// the scope work. If the answer is lost, ask again: the claimer gets its open claims first, apart
// from those in r.Held. A claim ends after 15 s, unless there is a heartbeat, progress or a report:
// package worker has a Reporter for these, and a loop around all of it.
func (c *Client) Claim(ctx context.Context, r ClaimRequest) ([]Delivery, error) {
	body, err := encode(r)
	if err != nil {
		return nil, err
	}
	list, err := call[api.ClaimList](ctx, c, r.Wait.Std(), func(ctx context.Context) (*http.Response, error) {
		return c.api.ClaimTasksWithBody(ctx, "application/json", bytes.NewReader(body))
	})
	return list.Claims, err
}
