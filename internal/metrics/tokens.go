package metrics

import "github.com/prometheus/client_golang/prometheus"

// Tokens adds whether the keys of each issuer and the issuers file are stale. file is nil if there
// is no issuers file.
func (m *Metrics) Tokens(keys func() map[string]bool, file func() bool) {
	m.registry.MustRegister(&tokenCollector{keys, file})
}

type tokenCollector struct {
	keys func() map[string]bool
	file func() bool
}

var (
	tokenKeysStale = desc("token_keys_stale",
		"1 while the keys of an issuer can't be read; the last ones stay in use.", "issuer")
	issuersFileStale = desc("issuers_file_stale",
		"1 while the issuers file can't be used; the last issuers stay in use.")
)

// Describe lists the metrics.
func (c *tokenCollector) Describe(out chan<- *prometheus.Desc) {
	out <- tokenKeysStale
	out <- issuersFileStale
}

// Collect reads the metrics.
func (c *tokenCollector) Collect(out chan<- prometheus.Metric) {
	for issuer, stale := range c.keys() {
		out <- gauge(tokenKeysStale, oneIf(stale), issuer)
	}
	if c.file != nil {
		out <- gauge(issuersFileStale, oneIf(c.file()))
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
