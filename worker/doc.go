// Package worker serves deliveries: the tasks that asyncflow POSTs to an endpoint.
//
//	w, err := worker.New(worker.Config{Keys: []string{os.Getenv("WORKER_SECRET")}})
//	…
//	worker.Handle(w, "thumbnails", "inspect", func(ctx context.Context, t worker.Task[Image]) (Picture, error) {
//		return inspect(ctx, t.Context)
//	})
//	err = w.ListenAndServe(ctx, "127.0.0.1:9000") // or mount it: a *Worker is an http.Handler
//
// One Worker serves any number of handlers, under any path: a delivery's type and stage,
// which are signed, say which of them it is for.
//
// # What a handler returns
//
// An output without an error: the task goes on, with the output as the next stage's
// context or as its result. An error: the attempt has failed and is tried again, as the
// task type's retry policy has it; Retry asks for a pause before that. Fail: the task has
// failed for good. Later: the work goes on elsewhere, and whoever does it reports by a
// Reporter with the task's Callback. A panic is an error like any.
//
// # How it is answered
//
// A handler that returns within Config.AnswerWithin is the answer to its delivery. One
// that takes longer, or whose connection breaks, goes on: the delivery is answered with
// 202, and the outcome is reported by a call of its own, again and again until it is
// recorded or the attempt's time is over. So a handler neither has to know the stage's
// timeout nor notices when asyncflow is restarted.
//
// Meanwhile the Worker sends heartbeats, which put the attempt's deadline off. The
// handler's context is cancelled, with the cause ErrCancelled, when the task was
// cancelled; with ErrLost when the attempt is over otherwise and another may be under way;
// with ErrStopped when Close runs out of patience. A handler that never returns is kept
// alive for ever: see TimeLimit.
//
// # At least once
//
// A task may be delivered more than once: make the work idempotent, by Task.ID and
// Task.Stage, or fence it by Task.Seq. The same request again (a proxy's repeat, or a
// replay) doesn't start the handler again in this process: it gets the same answer.
package worker
