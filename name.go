package asyncflow

import "fmt"

// MaxNameLength bounds the names of tenants, task types and stages, so that the
// names of the tables made from them fit into Postgres' 63 bytes.
const MaxNameLength = 40

// CheckName explains what is wrong with the name of a tenant, a task type or a stage. It must
// start with a lower-case letter, followed by lower-case letters, digits, "-" and "_", at most
// 40 characters.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("is required")
	case len(name) > MaxNameLength:
		return fmt.Errorf("is %d characters long; the limit is %d", len(name), MaxNameLength)
	case name[0] < 'a' || name[0] > 'z':
		return fmt.Errorf("must start with a lower-case letter")
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return fmt.Errorf("may hold lower-case letters, digits, - and _ only")
		}
	}
	return nil
}
