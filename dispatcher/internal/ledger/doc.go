// Package ledger counts the tasks in flight on a node, and decides how many more may be. Its Ledger
// uses neither the database nor the clock.
package ledger
