package callbacks

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks/internal/transport"
)

// maxRoutesBytes bounds the certificates of the routes that a node keeps.
const maxRoutesBytes = 32 << 20

// routes are the transports of a node. All endpoints without settings share one. The endpoints of a
// tenant with settings share one if their certificates are the same. Transports don't share
// connections.
type routes struct {
	dial  transport.DialFunc
	idle  *transport.Idle // the pool of all routes
	plain *transport.Transport
	made  *cache[*transport.Transport]
}

// certificates are what a route is made from.
type certificates struct {
	asyncflow.EndpointTLS
	andSystem bool // the system's authorities count in addition to the CA
}

func newRoutes(cfg Config, dial transport.DialFunc) *routes {
	idle := transport.NewIdle(cfg.Connections, 4*cfg.Connections)
	return &routes{
		dial:  dial,
		idle:  idle,
		plain: transport.New(dial, nil, idle),
		made:  newCache[*transport.Transport](maxRoutesBytes),
	}
}

// to returns a tenant's transport for some certificates. When the cache evicts a transport, its
// idle connections are closed; its requests in flight go on.
func (r *routes) to(tenant string, c certificates) (*transport.Transport, error) {
	id := c.id()
	if known, ok := r.made.get(tenant, id); ok {
		return known, nil
	}
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	made := transport.New(r.dial, config, r.idle)
	for _, gone := range r.made.put(tenant, id, made, c.bytes()) {
		gone.CloseIdle()
	}
	return made, nil
}

// id returns a hash of the certificates.
func (c certificates) id() string {
	sum := sha256.New()
	for _, part := range []string{c.CA, c.Certificate, c.Key} {
		one := sha256.Sum256([]byte(part))
		sum.Write(one[:])
	}
	if c.andSystem {
		return string(sum.Sum([]byte{'+'}))
	}
	return string(sum.Sum(nil))
}

// bytes is roughly what a route takes in memory, without its connections. Each route that counts
// the system's authorities lists them.
func (c certificates) bytes() int {
	n := 4<<10 + 4*(len(c.CA)+len(c.Certificate)+len(c.Key))
	if c.andSystem {
		n += 64 << 10
	}
	return n
}

// config returns the certificates for package tls.
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
