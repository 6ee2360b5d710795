package main

import (
	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/httpapi"
)

// limitFlags bound the connections to the API.
type limitFlags struct {
	MaxConnections      int `env:"ASYNCFLOW_MAX_CONNECTIONS" default:"10000" help:"The most connections to the API at once."`
	MaxConnectionsPerIP int `name:"max-connections-per-ip" env:"ASYNCFLOW_MAX_CONNECTIONS_PER_IP" default:"0" help:"The most of them from one IP address, of IPv6 from one /64; 0: no bound. Behind a proxy all come from its address."`
}

// check refuses limits that can't be.
func (f limitFlags) check() error {
	const most = 1_000_000
	if f.MaxConnections < 1 || f.MaxConnections > most {
		return asyncflow.InvalidField("--max-connections", "is %d; it must be 1 to %d", f.MaxConnections, most)
	}
	if f.MaxConnectionsPerIP < 0 || f.MaxConnectionsPerIP > most {
		return asyncflow.InvalidField("--max-connections-per-ip", "is %d; it must be 0 to %d", f.MaxConnectionsPerIP, most)
	}
	return nil
}

func (f limitFlags) connections() httpapi.ConnectionConfig {
	return httpapi.ConnectionConfig{Max: f.MaxConnections, MaxPerAddress: f.MaxConnectionsPerIP}
}
