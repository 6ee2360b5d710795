// Package callbacks is the wire between asyncflow and workers, in both directions:
//
//   - sender….go: sends deliveries and challenges. Package internal/transport does the HTTP.
//   - envelope.go, signature….go: what a request says, and its signature.
//   - answer….go: reads an answer into an outcome.
//   - token.go, keys.go: the completion tokens that workers report with, and the node's keys.
//   - endpoint_….go: an endpoint's secrets and settings, sealed and opened.
//   - oauth2.go: an endpoint's logins.
//   - guard.go: keeps deliveries away from networks that they must not reach.
package callbacks
