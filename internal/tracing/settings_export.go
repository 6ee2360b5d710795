package tracing

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"
	"slices"
	"strings"
)

// checkEndpoints doesn't show a URL in an error: a password may be in it.
func (s *settings) checkEndpoints(env environment) error {
	for _, name := range otlp("ENDPOINT") {
		_, text := env.get(name)
		if text == "" {
			continue
		}
		u, err := url.Parse(text)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
			return invalid(name, "must be an absolute URL such as http://collector:4318")
		case u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#"):
			return invalid(name, "must have no user, query or fragment: exports would go without "+
				"them. OTEL_EXPORTER_OTLP_HEADERS is for tokens")
		case s.protocol == protocolGRPC && strings.Trim(u.Path, "/") != "":
			return invalid(name, "must have no path for grpc")
		}
	}
	return nil
}

// readTLS refuses a variable that contradicts the URL: the SDK would follow it, and send spans and
// tokens without TLS to an https URL. Its default receiver is the specification's, without TLS.
func (s *settings) readTLS(env environment) error {
	_, endpoint := env.get(otlp("ENDPOINT")...)
	name, insecure := env.get(otlp("INSECURE")...)
	if endpoint == "" {
		s.plain = !strings.EqualFold(insecure, "false")
		return nil
	}
	scheme, _, _ := strings.Cut(strings.ToLower(endpoint), ":")
	if insecure != "" && strings.EqualFold(insecure, "true") == (scheme == "https") {
		return invalid(name, "is %s, but the URL of the receiver begins with %s: leave it out",
			insecure, scheme)
	}
	return nil
}

// readHeaders doesn't show a value in an error: most are secrets.
func (s *settings) readHeaders(env environment) error {
	for _, name := range otlp("HEADERS") {
		_, text := env.get(name)
		if text == "" {
			continue
		}
		for i, one := range strings.Split(text, ",") {
			key, escaped, ok := strings.Cut(one, "=")
			value, err := url.PathUnescape(escaped)
			if !ok || err != nil || !isToken(strings.TrimSpace(key)) {
				return invalid(name, "has no header as entry %d; it must look like name=value, "+
					"with commas between several", i+1)
			}
			if !s.carries(strings.TrimSpace(key), strings.TrimSpace(value)) {
				return invalid(name, "has a header as entry %d that %s can't carry",
					i+1, s.protocol)
			}
			s.addSecret(strings.TrimSpace(value))
		}
	}
	return nil
}

// addSecret adds the value of a header, and what is behind a word such as Bearer.
func (s *settings) addSecret(value string) {
	_, token, _ := strings.Cut(value, " ")
	for _, one := range []string{value, token} {
		if len(one) >= minSecret {
			s.secrets = append(s.secrets, one)
		}
	}
}

// isToken reports whether a text can be the name of an HTTP header.
func isToken(text string) bool {
	return text != "" && !slices.ContainsFunc([]byte(text), func(b byte) bool {
		return b <= ' ' || b >= 0x7f || strings.IndexByte(`()<>@,;:\"/[]?={}`, b) >= 0
	})
}

// carries reports whether the protocol can carry a header. gRPC makes names lower-case.
func (s *settings) carries(name, value string) bool {
	if s.protocol != protocolGRPC {
		return !slices.ContainsFunc([]byte(value), func(b byte) bool {
			return b < ' ' && b != '\t' || b == 0x7f
		})
	}
	return !slices.ContainsFunc([]byte(value), func(b byte) bool { return b < ' ' || b > '~' }) &&
		strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789_.-") == ""
}

func checkCertificates(env environment) error {
	for _, name := range otlp("CERTIFICATE") {
		_, file := env.get(name)
		if file == "" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return invalid(name, "can't be read: %v", err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(text) {
			return invalid(name, "is the file %.200q, which has no certificate in PEM", file)
		}
	}
	for _, infix := range []string{"TRACES_", ""} {
		name, file := env.get("OTEL_EXPORTER_OTLP_" + infix + "CLIENT_CERTIFICATE")
		_, key := env.get("OTEL_EXPORTER_OTLP_" + infix + "CLIENT_KEY")
		if file == "" && key == "" {
			continue
		}
		if _, err := tls.LoadX509KeyPair(file, key); err != nil {
			return invalid(name, "and its CLIENT_KEY can't be used: %v", err)
		}
	}
	return nil
}
