package callbacks

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync"

	"github.com/hashicorp/go-retryablehttp"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/asyncflow/asyncflow"
)

// maxRoutes bounds how many sets of certificates have connections.
const maxRoutes = 128

// routes are the clients of endpoints that have certificates of their own. Endpoints
// with the same ones share a client; connections are shared with nobody else.
type routes struct {
	cfg Config

	mu   sync.Mutex
	made *lru.Cache[string, *retryablehttp.Client]
}

// certificates are what a route is made from.
type certificates struct {
	asyncflow.EndpointTLS
	andSystem bool // the system's authorities count beside the CA
}

func newRoutes(cfg Config) *routes {
	return &routes{cfg: cfg, made: newLRU(maxRoutes, func(_ string, c *retryablehttp.Client) {
		c.HTTPClient.Transport.(*transport).idle.closeAll()
	})}
}

// to returns the client for some certificates. The one that was needed least recently
// gives way to a new one; its requests under way go on.
func (r *routes) to(c certificates) (*retryablehttp.Client, error) {
	sum := sha256.New()
	for _, part := range []string{c.CA, c.Certificate, c.Key} {
		one := sha256.Sum256([]byte(part))
		sum.Write(one[:])
	}
	id := string(sum.Sum(nil))
	if c.andSystem {
		id += "+"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.made.Get(id); ok {
		return known, nil
	}
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	made := newClient(newTransport(r.cfg, config))
	r.made.Add(id, made)
	return made, nil
}

// config returns the certificates as package tls takes them.
func (c certificates) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		config.RootCAs = x509.NewCertPool()
		if c.andSystem {
			if system, err := x509.SystemCertPool(); err == nil {
				config.RootCAs = system
			}
		}
		if !config.RootCAs.AppendCertsFromPEM([]byte(c.CA)) {
			return nil, errors.New("the endpoint's tls.ca has no certificate")
		}
	}
	if c.Certificate != "" {
		pair, err := tls.X509KeyPair([]byte(c.Certificate), []byte(c.Key))
		if err != nil {
			return nil, errors.New("the endpoint's tls.certificate and tls.key are no pair")
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// newLRU returns a cache of a size that can be.
func newLRU[V any](size int, evicted func(string, V)) *lru.Cache[string, V] {
	cache, err := lru.NewWithEvict(size, evicted)
	if err != nil {
		panic(err) // sizes are constants
	}
	return cache
}
