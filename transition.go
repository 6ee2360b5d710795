package asyncflow

// Transition is one step of a task's life: an action leads from one status to another.
type Transition struct {
	From   Status // "": there is no task yet
	Action string // a verdict, or the action of a caller or a background job
	To     Status
}

// Transitions are all possible steps. An action with a verdict's name follows an attempt: it
// starts at running or, if the lease was lost and the result comes late, at the task's current
// status. docs/state-machine.md draws them.
var Transitions = []Transition{
	{"", "submit", StatusPending},
	{"", "submit", StatusWaiting}, // due in more than a minute
	{StatusWaiting, "promote", StatusPending},
	{StatusPending, "lease", StatusRunning},
	// blocked by a limit, its flow key or an endpoint
	{StatusPending, "hold", StatusWaiting},
	{StatusWaiting, "lease", StatusRunning}, // it was blocked, and there is capacity now

	{StatusRunning, string(Await), StatusRunning},
	{StatusRunning, string(Advance), StatusPending},
	{StatusRunning, string(Retry), StatusPending},
	{StatusRunning, string(Retry), StatusWaiting},
	{StatusRunning, string(Return), StatusPending},
	{StatusRunning, string(Advance), StatusWaiting}, // for a claimer, as the next two
	{StatusRunning, string(Return), StatusWaiting},
	{StatusWaiting, string(Advance), StatusWaiting},
	{StatusPending, string(Advance), StatusWaiting},
	{StatusRunning, string(Park), StatusWaiting},
	{StatusRunning, string(Spawn), StatusWaiting},
	{StatusRunning, string(Succeed), StatusSucceeded},
	{StatusRunning, string(Fail), StatusFailed},
	{StatusRunning, string(Cancel), StatusCancelled},

	{StatusPending, string(Advance), StatusPending},
	{StatusWaiting, string(Advance), StatusPending},
	{StatusPending, string(Succeed), StatusSucceeded},
	{StatusWaiting, string(Succeed), StatusSucceeded},
	{StatusPending, string(Fail), StatusFailed},
	{StatusWaiting, string(Fail), StatusFailed},

	{StatusPending, "change", StatusPending},
	{StatusPending, "change", StatusWaiting},
	{StatusWaiting, "change", StatusPending},
	{StatusWaiting, "change", StatusWaiting},

	{StatusPending, string(Cancel), StatusCancelled},
	{StatusWaiting, string(Cancel), StatusCancelled},
	{StatusFailed, "redrive", StatusPending},
	{StatusCancelled, "redrive", StatusPending},
	{StatusFailed, "redrive", StatusWaiting}, // its failed children are redriven
	{StatusCancelled, "redrive", StatusWaiting},
}
