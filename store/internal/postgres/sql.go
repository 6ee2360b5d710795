package postgres

import (
	"hash/fnv"

	"github.com/jackc/pgx/v5"
)

// Quote quotes an identifier.
func Quote(identifier string) string { return pgx.Identifier{identifier}.Sanitize() }

// LockKey returns the key of the advisory lock of a name.
func LockKey(name string) int64 {
	h := fnv.New64a()
	h.Write([]byte("asyncflow " + name))
	return int64(h.Sum64())
}
