// Package asyncflow holds the words and the pure rules of asyncflow, a durable
// HTTP callback dispatcher: what a task type, a stage, a task, an attempt, an
// outcome and a verdict are, when a task is due, and what follows from the
// answer of a worker.
//
// The package imports the standard library only. It reads no clock, opens no
// connection and starts no goroutine, so every rule in it can be tested as a
// table. The other packages store these words (store), carry them over HTTP
// (callbacks, internal/httpapi) and act on them (dispatcher, governance).
package asyncflow
