package asyncflow

import (
	"math"
	"time"
)

// StageLoad is what a stage asks of its workers.
type StageLoad struct {
	Running int64 // tasks that are with workers now
	Backlog int64 // tasks that are due and that more workers could begin
	// Started is how many tasks a second were started lately.
	Started float64
	// Service is how long an attempt keeps a worker, on average; zero: none ended lately.
	Service time.Duration
}

// Bounds of the time in which a backlog is to be gone, and its default.
const (
	MinScaleTarget     = time.Second
	MaxScaleTarget     = 24 * time.Hour
	DefaultScaleTarget = time.Minute
)

// DefaultService is the length of an attempt in a stage in which none ended lately.
const DefaultService = time.Second

// Slots returns how many tasks the workers of a stage should be able to do at once: as many as the
// rate at which tasks start keeps busy (Little's law: rate × time), and on top of it as many as do
// the backlog within target. most is the type's max_in_flight (0: none): more workers would wait.
// While there are tasks in a stage, it is 1 at least.
func (l StageLoad) Slots(target time.Duration, most int) int {
	service := l.Service
	if service <= 0 {
		service = DefaultService
	}
	work := l.Started*service.Seconds() + float64(l.Backlog)*service.Seconds()/target.Seconds()
	slots := int(math.Ceil(min(work, math.MaxInt32) - scaleTolerance))
	if l.Running+l.Backlog > 0 {
		slots = max(slots, 1)
	}
	if most > 0 {
		slots = min(slots, most)
	}
	return max(slots, 0)
}

// scaleTolerance keeps the rounding of floating-point numbers from asking for one slot more.
const scaleTolerance = 1e-9
