package auth

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

const (
	connectTimeout = 5 * time.Second
	maxHeaderBytes = 64 << 10
)

// fetcher returns a function that fetches the key set of a Config. It follows no redirects, accepts
// no compressed answer, and reads no more than the limit of a key set.
func fetcher(c Config) func(context.Context) ([]byte, error) {
	client := &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: connectTimeout}).DialContext,
			TLSHandshakeTimeout:    connectTimeout,
			TLSClientConfig:        &tls.Config{RootCAs: c.RootCAs, MinVersion: tls.VersionTLS12},
			MaxResponseHeaderBytes: maxHeaderBytes,
			DisableCompression:     true, // a small compressed answer could become huge
			DisableKeepAlives:      true, // fetches are minutes apart
		},
	}
	return func(ctx context.Context) ([]byte, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.JWKSURL, nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Accept", "application/jwk-set+json, application/json")
		resp, err := client.Do(req)
		if err != nil {
			return nil, withoutURL(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("was answered with %d", resp.StatusCode)
		}
		return readKeys(resp.Body)
	}
}

// withoutURL removes the URL from an error of package http: its query must not be logged.
func withoutURL(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// fileReader returns a function that reads a file of keys.
func fileReader(path string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		if info, err := os.Stat(path); err != nil {
			return nil, err
		} else if !info.Mode().IsRegular() { // reading a pipe could take forever
			return nil, errors.New("is not a regular file")
		}
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return readKeys(f)
	}
}

// readKeys reads all of r, up to maxKeysBytes.
func readKeys(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxKeysBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxKeysBytes {
		return nil, fmt.Errorf("has more than %d bytes", maxKeysBytes)
	}
	return text, nil
}

// placeOf returns a URL without its query, for people.
func placeOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	u.RawQuery = ""
	return u.String()
}
