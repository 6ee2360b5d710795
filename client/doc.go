// Package client talks to an asyncflow server: it submits tasks, follows them,
// and sets up task types and endpoints.
//
//	c, err := client.New("http://127.0.0.1:8080", token)
//	…
//	task, err := c.Submit(ctx, client.NewTask{
//		Type:    "thumbnails",
//		Context: []byte(`{"image": "harbour.jpg"}`),
//	})
//	…
//	done, err := c.Wait(ctx, task.ID, time.Minute) // or follow it with c.Watch(ctx, task.ID)
//
// # Errors
//
// An answer that is a problem document becomes an *Error. A call without an answer becomes a
// *ConnectionError. Both work with errors.As, and asyncflow.CodeOf returns the code of either.
//
// # Retries
//
// Calls that only read are retried a few times when the server can't be reached or answers 503. So
// are submits of tasks that have a Key: the second submit finds the first task. Other calls that
// change something are never retried: the first try may have taken effect, and a task that is
// submitted twice runs twice.
package client
