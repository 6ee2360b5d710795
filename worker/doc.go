// Package worker serves deliveries: the tasks that asyncflow POSTs to an endpoint.
//
//	w, err := worker.New(worker.Config{Keys: []string{os.Getenv("WORKER_SECRET")}})
//	…
//	worker.Handle(w, "thumbnails", "inspect",
//		func(ctx context.Context, t worker.Task[Image]) (Picture, error) {
//			return inspect(ctx, t.Context)
//		})
//	err = w.ListenAndServe(ctx, "127.0.0.1:9000") // or mount it: a *Worker is an http.Handler
//
// One Worker serves any number of handlers, under any path. The type and stage of a delivery, which
// are signed, select the handler.
//
// # What a handler returns
//
//   - An output without an error: the task goes on. The output is the context of the next stage,
//     or the result of the task.
//   - An error: the attempt failed. The retry policy of the task type decides what follows;
//     Retry asks for a pause. A panic counts as an error.
//   - Fail: the task failed for good.
//   - Later: the work goes on elsewhere. A Reporter with the task's Callback reports its end.
//
// # How a delivery is answered
//
// If a handler returns within Config.AnswerWithin, its outcome is the answer to the delivery. If it
// takes longer, or the connection breaks, the handler goes on: the delivery is answered with 202,
// and the Worker reports the outcome in a call of its own. It retries that call until the outcome
// is recorded or the attempt's time is over. So a handler needn't know the stage's timeout, and
// doesn't notice a restart of asyncflow.
//
// Meanwhile the Worker sends heartbeats, which postpone the attempt's deadline. The context of the
// handler is cancelled with one of these causes:
//
//   - ErrCancelled: the task was cancelled.
//   - ErrLost: the attempt is over for another reason, and another attempt may be in flight.
//   - ErrStopped: Close reached the end of its context.
//
// Heartbeats keep a handler alive that never returns: see TimeLimit.
//
// # At least once
//
// A task may be delivered more than once. Make the work idempotent, by Task.ID and Task.Stage, or
// fence it by Task.Seq. A repeated request, such as a proxy's retry or a replay, doesn't start the
// handler again in this process: it gets the same answer.
package worker
