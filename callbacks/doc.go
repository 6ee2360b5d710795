// Package callbacks holds everything on the wire between asyncflow and a
// worker, both ways: the envelope of a delivery and its signature, sending it,
// reading the answer into an outcome, the completion token by which a worker
// reports later, and the guard that keeps deliveries away from networks they
// must not reach.
package callbacks
