package asyncflow

// Transition is one step of a task's life: an act leads from a status to another.
type Transition struct {
	From Status // "": there is no task yet
	Act  string // a verdict, or what a caller or governance does
	To   Status
}

// Transitions are all steps there are. An act of a verdict's name is what follows from
// an attempt: from running, or, when its lease was lost and its result comes late, from
// where the task stands then. docs/state-machine.md draws them.
var Transitions = []Transition{
	{"", "submit", StatusPending},
	{"", "submit", StatusWaiting}, // due in more than a minute
	{StatusWaiting, "promote", StatusPending},
	{StatusPending, "lease", StatusRunning},
	// a limit, its flow key or an endpoint keeps it from running
	{StatusPending, "hold", StatusWaiting},
	{StatusWaiting, "lease", StatusRunning}, // it was held, and there is room now

	{StatusRunning, string(Await), StatusRunning},
	{StatusRunning, string(Advance), StatusPending},
	{StatusRunning, string(Retry), StatusPending},
	{StatusRunning, string(Retry), StatusWaiting},
	{StatusRunning, string(Return), StatusPending},
	{StatusRunning, string(Park), StatusWaiting},
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
}
