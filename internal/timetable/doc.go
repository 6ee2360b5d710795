// Package timetable tells at what times a schedule ticks. Everything in it is a pure
// function of the schedule and of the time that it is asked from.
//
// A cron expression speaks of the clocks of a time zone, which are put forward and back.
// An expression for every hour ticks whenever those clocks show a time that it names:
// evenly, also in the hour that comes twice. Any other names times of the day, and each
// of them comes once: at the first moment at which the clocks show it, or a later time
// where they were put forward past it.
package timetable
