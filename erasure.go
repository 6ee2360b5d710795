package asyncflow

import "time"

// Erasure says when the contents of a task were erased, and by whom. The task itself stays: where
// it ended, when, and how its attempts went.
type Erasure struct {
	At time.Time `json:"at"`
	By string    `json:"by,omitempty"` // the subject of a token, or RetentionErases
}

// RetentionErases is Erasure.By of a task that was erased as its type asks.
const RetentionErases = "retention"

// Erase returns what remains of the options of a task that is erased: what it is to other tasks,
// and the keys by which they know it.
func (o Options) Erase(e Erasure) Options {
	e.At = e.At.UTC()
	left := Options{Priority: o.Priority, Key: o.Key, FlowKey: o.FlowKey, DependsOn: o.DependsOn,
		ContextFrom: o.ContextFrom, Spawned: o.Spawned, RerunOf: o.RerunOf, Erased: &e}
	if o.Child != nil {
		child := *o.Child
		child.Shared = nil
		left.Child = &child
	}
	if o.Notification != nil {
		left.Notification = &Notification{Event: o.Notification.Event, Task: o.Notification.Task}
	}
	return left
}

// Refusal returns the error of what needs the contents of a task that is erased.
func (e Erasure) Refusal(id TaskID) error {
	return Errorf(CodeErased, "the contents of task %s were erased at %s", id,
		e.At.UTC().Format(time.RFC3339))
}

// Erase returns what a notification on its way still tells of a task that is erased.
func (f FinalTask) Erase() FinalTask {
	f.Labels = Labels{}
	f.Error = ""
	f.Result = nil
	return f
}
