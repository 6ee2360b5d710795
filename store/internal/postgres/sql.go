package postgres

import "github.com/jackc/pgx/v5"

// Quote quotes an identifier.
func Quote(identifier string) string { return pgx.Identifier{identifier}.Sanitize() }
