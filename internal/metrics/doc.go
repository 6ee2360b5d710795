// Package metrics keeps the metrics of a node and of the tasks in its database, in Prometheus' text
// format. Events of tasks are counted by atomic adds; labels are looked up once per batch. Figures
// from the database are read when somebody asks for them, and cached for a while.
package metrics
