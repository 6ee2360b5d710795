package history

import "github.com/asyncflow/asyncflow"

// Field is a number of a point. Its own number is stored: none is ever used for something else.
type Field int

// Counters, of a type.
const (
	Submitted Field = iota
	Attempts        // that ended, without those that were snoozed
	Failures        // attempts that ended without being done
	Snoozes         // attempts that workers put off
	Succeeded
	Failed
	Cancelled
	Redriven // failed or cancelled tasks that were started again
	Ended    // of a stage: attempts that their workers ended
	Busy     // of a stage: milliseconds that they had a worker, added up
)

// Gauges, of a type, as they were sampled once a minute. Of a longer time, the greatest counts.
const (
	Pending Field = firstGauge + iota
	Waiting
	Running
)

// The parts of a point. Each has room for more fields.
const (
	firstGauge    Field = 16
	firstReason   Field = 24  // + the index in reasons: due tasks that wait for it
	firstWait     Field = 64  // + a bucket: tasks of a stage by how long they were due
	firstDuration Field = 160 // + a bucket: attempts of a stage by how long they took
	fieldsEnd     Field = 256
)

// reasons are why due tasks wait, in the order of their fields. New ones come last.
var reasons = []asyncflow.WaitReason{asyncflow.WaitDelay, asyncflow.WaitRetry, asyncflow.WaitSnooze,
	asyncflow.WaitEndpoint, asyncflow.WaitFlow, asyncflow.WaitLimit, asyncflow.WaitUnhealthy,
	asyncflow.WaitClaimer, asyncflow.WaitDependencies, asyncflow.WaitChildren, asyncflow.WaitSignal,
	asyncflow.WaitParent, asyncflow.WaitType, asyncflow.WaitConcurrency, asyncflow.WaitDeliveries,
	asyncflow.WaitPaused, asyncflow.WaitCapacity}

func (f Field) isGauge() bool { return f >= firstGauge && f < firstWait }

// Values are the numbers of a minute, an hour or a longer time. Fields that are 0 are left out.
type Values map[Field]int64

// Backlog returns the due tasks by what they wait for; nil without any.
func (v Values) Backlog() map[asyncflow.WaitReason]int64 {
	var all map[asyncflow.WaitReason]int64
	for i, why := range reasons {
		if n := v[firstReason+Field(i)]; n > 0 {
			if all == nil {
				all = map[asyncflow.WaitReason]int64{}
			}
			all[why] = n
		}
	}
	return all
}

// count adds to a field.
func (v Values) count(f Field, n int64) {
	if n > 0 {
		v[f] += n
	}
}

// raise takes the greater ones of other readings of the same time. It reports whether any was.
func (v Values) raise(same Values) (raised bool) {
	for f, n := range same {
		if n > v[f] {
			v[f] = n
			raised = true
		}
	}
	return raised
}

// fold adds the values of another time, or of another part of the type: counters are added up, of
// gauges the greatest counts.
func (v Values) fold(more Values) {
	for f, n := range more {
		if f.isGauge() {
			v[f] = max(v[f], n)
		} else {
			v[f] += n
		}
	}
}

// add adds the values of another type at the same time.
func (v Values) add(more Values) {
	for f, n := range more {
		v[f] += n
	}
}
