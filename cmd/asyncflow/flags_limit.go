package main

import (
	"cmp"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/httpapi"
)

// limitFlags bound the resources that callers of the API may use.
type limitFlags struct {
	MaxConnections         int `env:"ASYNCFLOW_MAX_CONNECTIONS" default:"10000"`
	MaxConnectionsPerIP    int `env:"ASYNCFLOW_MAX_CONNECTIONS_PER_IP" default:"0"`
	MaxStreams             int `env:"ASYNCFLOW_MAX_STREAMS" default:"2000"`
	MaxStreamsPerTenant    int `env:"ASYNCFLOW_MAX_STREAMS_PER_TENANT" default:"0"`
	MaxBodyMemory          int `env:"ASYNCFLOW_MAX_BODY_MEMORY" default:"134217728"`
	MaxBodyMemoryPerTenant int `env:"ASYNCFLOW_MAX_BODY_MEMORY_PER_TENANT" default:"0"`
}

// check refuses limits that are out of range. maxBody is the largest request body in bytes: the
// budgets must hold at least one.
func (f limitFlags) check(maxBody int) error {
	const most = 1_000_000
	const mostBytes = 1 << 40
	for _, n := range []struct {
		name              string
		value, from, upTo int
	}{
		{"--max-connections", f.MaxConnections, 1, most},
		{"--max-connections-per-ip", f.MaxConnectionsPerIP, 0, most},
		{"--max-streams", f.MaxStreams, 1, most},
		{"--max-streams-per-tenant", f.MaxStreamsPerTenant, 0, f.MaxStreams},
		{"--max-body-memory", f.MaxBodyMemory, 4 * maxBody, mostBytes},
		{"--max-body-memory-per-tenant", cmp.Or(f.MaxBodyMemoryPerTenant, maxBody), maxBody,
			f.MaxBodyMemory},
	} {
		if n.value < n.from || n.value > n.upTo {
			return asyncflow.InvalidField(n.name, "is %d; it must be %d to %d", n.value, n.from, n.upTo)
		}
	}
	return nil
}

// apply sets the limits in the configuration of the API.
func (f limitFlags) apply(c *httpapi.Config) {
	c.Connections = httpapi.ConnectionConfig{Max: f.MaxConnections,
		MaxPerAddress: f.MaxConnectionsPerIP}
	c.Streams = httpapi.StreamConfig{Max: f.MaxStreams, MaxPerTenant: f.MaxStreamsPerTenant}
	c.Bodies = httpapi.BodyConfig{Max: f.MaxBodyMemory, MaxPerTenant: f.MaxBodyMemoryPerTenant}
}
