// Package metrics shows what a node does, and how the tasks of its database stand, in
// Prometheus' text format. What happens to each task is counted by atomic adds; labels
// are looked up once a batch. What is read from the database is read when somebody asks,
// and kept for a while.
package metrics
