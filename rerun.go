package asyncflow

import "encoding/json"

// Rerun returns the task that runs another one again, with a context. The options are those of the
// other one: what belongs to that task alone is left out, such as its key and its dependencies.
func Rerun(of TaskID, context json.RawMessage, o Options) NewTask {
	return NewTask{Type: of.Type, Context: context, Options: Options{Priority: o.Priority,
		Retry: o.Retry, FlowKey: o.FlowKey, OnFinal: o.OnFinal, Claim: o.Claim, Labels: o.Labels,
		RerunOf: of.String()}}
}

// CheckRerun returns why a task with a status and options can't be run again as a new task, or nil:
// CodeConflict, or CodeErased.
func CheckRerun(id TaskID, status Status, o Options) error {
	switch {
	case !status.Final():
		return Errorf(CodeConflict, "task %s is not final: it can be run again once it is",
			id)
	case o.Erased != nil:
		return o.Erased.Refusal(id)
	case id.Type == AlertType:
		return Errorf(CodeConflict, "task %s is an alert, which tells of an event once", id)
	case o.Child != nil:
		return Errorf(CodeConflict, "task %s is a child of %s: run that one again", id,
			TaskID{Type: id.Type, Number: o.Child.Parent})
	case o.Notification != nil:
		return Errorf(CodeConflict, "task %s is a notification, which tells the end of %s once",
			id, o.Notification.Task)
	}
	return nil
}
