// Package asyncflow defines the domain types and the pure rules of asyncflow, a durable HTTP
// callback dispatcher: task types, stages, tasks, attempts, outcomes and verdicts, when a task
// is due, and what follows from the answer of a worker.
//
// The package imports the standard library only. It reads no clock, opens no connection and
// starts no goroutine, so every rule in it can be tested as a table. The other packages store
// these types (store), carry them over HTTP (callbacks, internal/httpapi) and act on them
// (dispatcher, governance).
package asyncflow
