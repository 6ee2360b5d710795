// Package client talks to an asyncflow server: it submits tasks, follows them,
// and sets up task types and endpoints.
//
//	c, err := client.New("http://127.0.0.1:8080", token)
//	…
//	task, err := c.Submit(ctx, client.NewTask{Type: "thumbnails", Context: []byte(`{"image": "harbour.jpg"}`)})
//	…
//	done, err := c.Wait(ctx, task.ID, time.Minute) // or follow it with c.Watch(ctx, task.ID)
//
// # Errors
//
// An answer that is a problem becomes an *Error; a call that got no answer at
// all becomes a *ConnectionError. Both work with errors.As, and
// asyncflow.CodeOf tells the code of either.
//
// # Retries
//
// Calls that only read are tried again a few times when the server can't be
// reached or answers 503. So are submits of tasks that have a Key: the second one finds the
// first. Other calls that change something never are: whether the first try took effect may
// be unknown, and a task submitted twice runs twice.
package client
