package httpapi

import (
	"cmp"

	"github.com/asyncflow/asyncflow"
)

// BodyConfig bounds the memory of a node for the bodies of requests, in bytes, and as much again
// for answers that are not sent yet. Bodies of up to 8 KiB don't count, because they are read into
// memory that their connection has anyway. Answers of up to 16 KiB don't count either. Zero values
// are the defaults.
type BodyConfig struct {
	Max          int // for all tenants together; 0: 128 MiB
	MaxPerTenant int // for one tenant; 0: a quarter of Max
}

// DefaultMaxBodyMemory is the default of BodyConfig.Max, in bytes.
const DefaultMaxBodyMemory = 128 << 20

func (c BodyConfig) withDefaults() BodyConfig {
	c.Max = cmp.Or(c.Max, DefaultMaxBodyMemory)
	c.MaxPerTenant = cmp.Or(c.MaxPerTenant, c.Max/4)
	return c
}

// check refuses limits that are smaller than the largest body, which could then never be read.
func (c BodyConfig) check(maxBody int) error {
	if c.MaxPerTenant < maxBody || c.Max < c.MaxPerTenant {
		return asyncflow.InvalidField("Bodies", "has %d bytes for one tenant and %d for all; "+
			"a tenant needs those of one body, %d, and all as many as one",
			c.MaxPerTenant, c.Max, maxBody)
	}
	return nil
}
