// Package timetable computes the times at which a schedule ticks. Everything in it is a pure
// function of the schedule and a starting time.
//
// A cron expression refers to the clocks of a time zone, which are put forward and back. An
// expression for every hour ticks whenever the clocks show a named time: evenly, even in an
// hour that comes twice. Any other expression names times of the day. Each of them ticks once a
// day: at the first moment at which the clocks show it, or a later time if they were put
// forward past it.
package timetable
