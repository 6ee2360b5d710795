// Package tasks reads, lists and watches tasks, and cancels, redrives or changes one of them or
// many, by operations.
//
// It uses packages trees, counts, hot, records and catalog. Begin with Task in read.go and TaskPage
// in list.go.
package tasks
