package checkup

import (
	"context"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"
)

// Certificate returns when the TLS certificate of the host of a URL ends.
type Certificate func(ctx context.Context, url string) (time.Time, error)

const (
	// mostHosts is how many hosts are asked, so many at once, each for so long.
	mostHosts   = 200
	hostsAtOnce = 20
	hostTime    = 3 * time.Second
	// endsSoon is how long before its end a certificate is reported.
	endsSoon = 14 * 24 * time.Hour
)

// host is a server that endpoints name.
type host struct {
	tenant, url string
	end         time.Time // of its certificate; zero: it couldn't be read
}

// certificates finds endpoints with a TLS certificate that ends soon. A host that doesn't answer is
// none of its business: the endpoint's health tells that.
func (c *checkup) certificates(ctx context.Context, f *findings) error {
	hosts, err := c.hosts(ctx, f)
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(hostsAtOnce)
	for _, h := range hosts {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, hostTime)
			defer cancel()
			h.end, _ = c.certificate(ctx, h.url)
			return nil
		})
	}
	_ = g.Wait()
	now := time.Now()
	for _, h := range hosts {
		switch left := h.end.Sub(now); {
		case h.end.IsZero() || left > endsSoon:
		case left < 0:
			f.addFor(h.tenant, LevelProblem, "renew it", "the certificate of %s ended %s", h.url,
				ago(now, h.end))
		default:
			f.addFor(h.tenant, LevelWarning, "renew it", "the certificate of %s ends at %s", h.url,
				h.end.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// hosts returns the hosts of all endpoints, each once, with the first of their URLs.
func (c *checkup) hosts(ctx context.Context, f *findings) ([]*host, error) {
	var all []*host
	known := map[string]bool{}
	var raw string
	err := c.eachTenant(ctx, f, `SELECT url FROM %[1]s.endpoints WHERE url LIKE 'https://%%'
		ORDER BY created_at LIMIT $1`, []any{&raw}, func(tenant string) {
		u, err := url.Parse(raw)
		if err != nil || known[u.Host] || len(all) == mostHosts {
			return
		}
		known[u.Host] = true
		all = append(all, &host{tenant: tenant, url: raw})
	}, mostHosts)
	if len(all) == mostHosts {
		f.add(LevelNote, "watch the certificates of the others yourself",
			"only the first %d hosts of endpoints were asked", mostHosts)
	}
	return all, err
}
