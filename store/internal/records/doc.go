// Package records has the rows of a tenant's tables, and the statements that write and take them:
// token rows (`ready`, `lease`, `wait`), journal, counts, fan-outs, votes and outbox. What a
// transaction inserts is gathered in Inserts, so that one statement has many rows.
//
// It uses package catalog. Begin with Inserts and Tokens; statements.go has the hot statements.
package records
