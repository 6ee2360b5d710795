package httpapi

import "cmp"

// maxPage is the largest and the default page of what a tenant configures, in entries.
const maxPage = 500

// pageLimit returns the limit of a page of what a tenant configures; 0 is the default.
func pageLimit(asked int) int { return cmp.Or(asked, maxPage) }

// defaultPage is the default page of all other lists, in entries.
const defaultPage = 50

// orDefaultPage returns the limit of a page of any other list; 0 is the default.
func orDefaultPage(asked int) int { return cmp.Or(asked, defaultPage) }
