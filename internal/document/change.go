package document

import "fmt"

// Change is what applying a document did with one of its items.
type Change struct {
	Kind string `json:"kind"` // "type", "endpoint" or "schedule"
	Name string `json:"name"` // of the type or schedule; type, stage and URL of the endpoint
	Did  string `json:"did"`  // "created", "changed" or "unchanged"
	ID   string `json:"id,omitempty"`
	// Secret of the endpoint, if the server made one just now.
	Secret string `json:"secret,omitempty"`
	// Unverified says why an endpoint that was just created gets no deliveries yet.
	Unverified string `json:"unverified,omitempty"`
}

// String returns the change in one line.
func (c Change) String() string {
	line := fmt.Sprintf("%-9s  %s %s", c.Did, c.Kind, c.Name)
	if c.Secret != "" {
		line += "  secret " + c.Secret + " (shown this once)"
	}
	if c.Unverified != "" {
		line += "  gets no deliveries until asyncflow endpoints verify " + c.ID + ": " +
			c.Unverified
	}
	return line
}
