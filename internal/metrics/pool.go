package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/asyncflow/asyncflow/store"
)

// poolCollector collects the metrics of the connection pools.
type poolCollector struct{ store *store.Store }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("asyncflow_"+name, help, labels, nil)
}

var (
	poolConnections = desc("pool_connections", "Connections to Postgres by state: idle, in_use.",
		"pool", "state")
	poolMost     = desc("pool_connections_max", "The most connections of a pool.", "pool")
	poolAcquires = desc("pool_acquires_total", "Connections that were asked for and acquired.", "pool")
	poolWaits    = desc("pool_waits_total", "Acquires that had to wait for a connection.", "pool")
	poolWaitTime = desc("pool_acquire_seconds_total", "The total time of all acquires.", "pool")
)

// Describe lists the metrics.
func (c *poolCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{poolConnections, poolMost, poolAcquires, poolWaits,
		poolWaitTime} {
		out <- d
	}
}

// Collect reads the metrics.
func (c *poolCollector) Collect(out chan<- prometheus.Metric) {
	for _, p := range c.store.PoolStats() {
		out <- gauge(poolConnections, float64(p.Idle), p.Name, "idle")
		out <- gauge(poolConnections, float64(p.InUse), p.Name, "in_use")
		out <- gauge(poolMost, float64(p.Most), p.Name)
		out <- counter(poolAcquires, float64(p.Acquires), p.Name)
		out <- counter(poolWaits, float64(p.Waits), p.Name)
		out <- counter(poolWaitTime, p.WaitSeconds, p.Name)
	}
}

func gauge(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func counter(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
}
