package callbacks

import "net/http"

// NewTransport returns what a Sender of this Config sends requests with, to endpoints
// that have no certificates of their own: for measurements that compare with it.
func NewTransport(cfg Config) http.RoundTripper { return newTransport(cfg, nil, newIdle(cfg)) }
