// Package lowwater keeps, for each ready table that a node leases from, the order_time below
// which nothing is left, so that leases needn't look there.
//
// While a transaction elsewhere is open for long, the index entries of token rows that
// were leased since can't be cleaned away, and every lease walks over all of them
// (measured at 7,000 tasks/s: from 1 ms to 30 ms within seconds, then a backlog that
// grows). So once leases of a ready table are slow, they begin at a low-water mark: an
// order_time below which everything was taken when a lease last looked.
//
// Rows may come in below the mark: retries, priorities, rows that were inserted earlier than
// their commit, the rows of a lease that was rolled back. The node that inserts rows
// announces them (to other nodes by NOTIFY), and the mark is lowered. Once in a while a lease
// looks at everything and finds the rows that nobody announced. That bounds how long a due
// task stays hidden.
//
// It exports, by the first word of its files:
//
//   - mark: Bound
//   - marks: Marks, NewMarks, Scan
package lowwater
