// Package node wires the parts of a node together: store, dispatcher, callbacks sender,
// governance, API and metrics, as its roles ask for, in the order in which they start and
// stop. The commands serve and dev run a node by it, and so do tests.
//
// newParts in parts.go constructs what the hot path consists of.
package node
