// Package pool runs functions in goroutines that are reused. It knows nothing of what they do.
package pool
