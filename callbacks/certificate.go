package callbacks

import (
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"time"
)

// CertificateEnd opens a TLS connection to the host of an https URL, as far as the policy of cfg
// allows that, sends nothing, and returns when the server's certificate ends. It doesn't judge the
// certificate: an endpoint may trust authorities of its own.
func CertificateEnd(ctx context.Context, cfg Config, rawURL string) (time.Time, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return time.Time{}, err
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	plain, err := newGuard(cfg).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return time.Time{}, err
	}
	defer plain.Close()
	conn := tls.Client(plain, &tls.Config{ServerName: u.Hostname(), InsecureSkipVerify: true})
	if err := conn.HandshakeContext(ctx); err != nil {
		return time.Time{}, err
	}
	return conn.ConnectionState().PeerCertificates[0].NotAfter, nil
}
