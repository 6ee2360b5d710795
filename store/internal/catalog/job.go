package catalog

// Due is how many rows a background job would change now. Tenant and Type are empty where the
// rows belong to none.
type Due struct {
	Tenant, Type string
	Rows         int
}

// JobBatch is the most rows that one transaction of a background job changes.
const JobBatch = 1000
