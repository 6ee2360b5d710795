package governance

import "time"

// SetJobs has the governor run other jobs.
func (g *Governor) SetJobs(jobs ...Job) { g.jobs = jobs }

// Next is next.
func Next(spec string, last, now time.Time) time.Time { return next(spec, last, now) }
