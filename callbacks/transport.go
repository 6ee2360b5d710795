package callbacks

import (
	"crypto/tls"
	"net/http"
	"time"
)

const (
	dialTimeout    = 10 * time.Second
	maxHeaderBytes = 64 << 10
)

// newTransport returns the transport of a node's deliveries to endpoints without
// certificates of their own, or (config not nil) with some: connections are kept and
// shared, no proxy is taken from the environment, nothing is unpacked on the way (a
// small body could become a huge one), and the address that is really dialled is
// checked.
func newTransport(cfg Config, config *tls.Config) http.RoundTripper {
	return onlyRoundTrips{&http.Transport{
		Proxy:                  nil,
		DialContext:            newGuard(cfg).DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    dialTimeout,
		DisableCompression:     true,
		MaxIdleConns:           4 * cfg.Connections,
		MaxIdleConnsPerHost:    cfg.Connections,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ForceAttemptHTTP2:      true,
	}}
}

// onlyRoundTrips hides the transport's CloseIdleConnections: go-retryablehttp
// calls it after each failed request, which would close every worker's
// connections for the fault of one.
type onlyRoundTrips struct{ rt http.RoundTripper }

func (o onlyRoundTrips) RoundTrip(r *http.Request) (*http.Response, error) { return o.rt.RoundTrip(r) }
