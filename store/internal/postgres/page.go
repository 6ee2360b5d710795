package postgres

import (
	"time"

	"github.com/jackc/pgx/v5"
)

// PageBytes is about how many bytes of long columns make a page of a list full, however few rows
// are on it. There is at least one row on a page.
const PageBytes = 1 << 20

// CollectPage reads a page of at most limit rows, and of about full bytes, and reports whether
// there are more rows. size returns how many bytes the long columns of a row take. The query must
// order the rows and return up to one more than limit.
func CollectPage[T any](
	rows pgx.Rows, limit, full int, scan pgx.RowToFunc[T], size func(T) int,
) (page []T, more bool, err error) {
	defer rows.Close()
	for bytes := 0; rows.Next(); {
		if len(page) == limit || bytes >= full {
			return page, true, nil
		}
		row, err := scan(rows)
		if err != nil {
			return nil, false, err
		}
		page = append(page, row)
		bytes += size(row)
	}
	return page, false, rows.Err()
}

// Place is the place of a row in a list by time. The zero place comes before all rows.
type Place struct {
	At time.Time
	ID string // a UUID
}
