package tracing

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/asyncflow/asyncflow"
)

// settings are what the variables of OpenTelemetry say. The SDK ignores a value that it can't read
// or doesn't know, with a line in the log at most; here it is an error.
type settings struct {
	exporter    string // "": none
	protocol    string // of the exporter otlp
	root        sdktrace.Sampler
	parentBased bool
	propagates  bool // takes the header traceparent in, and gives it on
	queue       int  // spans that wait for their export
}

const (
	exporterOTLP    = "otlp"
	exporterConsole = "console"
	protocolHTTP    = "http/protobuf"
	protocolGRPC    = "grpc"
	// maxQueue bounds OTEL_BSP_MAX_QUEUE_SIZE: a span takes about 2 KiB.
	maxQueue = 1 << 20
)

// environment reads variables. An empty one is as good as none, as the specification has it.
type environment func(name string) (string, bool)

func (env environment) get(names ...string) (name, value string) {
	for _, name := range names {
		if value, _ := env(name); value != "" {
			return name, value
		}
	}
	return names[0], ""
}

func invalid(name, format string, args ...any) error {
	return asyncflow.InvalidField(name, format, args...)
}

// readSettings reads the variables. Without an exporter, it looks at no others.
func readSettings(env environment) (s settings, err error) {
	if _, off := env.get("OTEL_SDK_DISABLED"); strings.EqualFold(off, "true") {
		return s, nil
	}
	name, exporter := env.get("OTEL_TRACES_EXPORTER")
	switch exporter {
	case "", "none":
		return s, nil
	case exporterOTLP, exporterConsole:
		s.exporter = exporter
	default:
		return s, invalid(name, "is %.80q; it must be otlp, console or none", exporter)
	}
	for _, read := range []func(environment) error{
		s.readProtocol, s.readSampler, s.readPropagators, s.readQueue,
		checkEndpoints, checkHeaders, checkNumbers, checkCertificates,
	} {
		if err := read(env); err != nil {
			return settings{}, err
		}
	}
	return s, nil
}

// otlp returns the names of a variable of the exporter otlp, the one for traces first.
func otlp(name string) []string {
	return []string{"OTEL_EXPORTER_OTLP_TRACES_" + name, "OTEL_EXPORTER_OTLP_" + name}
}

func (s *settings) readProtocol(env environment) error {
	name, protocol := env.get(otlp("PROTOCOL")...)
	switch protocol {
	case "", protocolHTTP:
		s.protocol = protocolHTTP
	case protocolGRPC:
		s.protocol = protocolGRPC
	default:
		return invalid(name, "is %.80q; it must be http/protobuf or grpc", protocol)
	}
	if name, c := env.get(otlp("COMPRESSION")...); c != "" && c != "gzip" && c != "none" {
		return invalid(name, "is %.80q; it must be gzip or none", c)
	}
	return nil
}

func (s *settings) readSampler(env environment) error {
	name, sampler := env.get("OTEL_TRACES_SAMPLER")
	if sampler == "" {
		sampler = "parentbased_always_on"
	}
	sampler, s.parentBased = strings.CutPrefix(sampler, "parentbased_")
	switch sampler {
	case "always_on":
		s.root = sdktrace.AlwaysSample()
	case "always_off":
		s.root = sdktrace.NeverSample()
	case "traceidratio":
		name, text := env.get("OTEL_TRACES_SAMPLER_ARG")
		if text == "" {
			text = "1"
		}
		ratio, err := strconv.ParseFloat(text, 64)
		if err != nil || !(ratio >= 0 && ratio <= 1) {
			return invalid(name, "is %.80q; it must be a number from 0 to 1", text)
		}
		s.root = sdktrace.TraceIDRatioBased(ratio)
	default:
		return invalid(name, "has %.80q; it must be always_on, always_off or traceidratio, or one "+
			"of these behind parentbased_", sampler)
	}
	return nil
}

func (s *settings) readPropagators(env environment) error {
	name, text := env.get("OTEL_PROPAGATORS")
	if text == "" {
		s.propagates = true
		return nil
	}
	for one := range strings.SplitSeq(text, ",") {
		switch strings.TrimSpace(one) {
		case "tracecontext":
			s.propagates = true
		case "baggage", "none": // no baggage is kept
		default:
			return invalid(name, "has %.80q; it may have tracecontext, baggage and none", one)
		}
	}
	return nil
}

func (s *settings) readQueue(env environment) error {
	s.queue = sdktrace.DefaultMaxQueueSize
	name, text := env.get("OTEL_BSP_MAX_QUEUE_SIZE")
	if text == "" {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxQueue {
		return invalid(name, "is %.80q; it must be 1 to %d", text, maxQueue)
	}
	s.queue = n
	return nil
}

func checkEndpoints(env environment) error {
	for _, name := range otlp("ENDPOINT") {
		_, text := env.get(name)
		if text == "" {
			continue
		}
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return invalid(name, "must be an absolute URL such as http://collector:4318")
		}
	}
	return nil
}

// checkHeaders doesn't show a value in an error: most are secrets.
func checkHeaders(env environment) error {
	for _, name := range otlp("HEADERS") {
		_, text := env.get(name)
		if text == "" {
			continue
		}
		for i, one := range strings.Split(text, ",") {
			key, value, ok := strings.Cut(one, "=")
			_, err := url.PathUnescape(value)
			if !ok || err != nil || !isToken(strings.TrimSpace(key)) {
				return invalid(name, "has no header as entry %d; it must look like name=value, "+
					"with commas between several", i+1)
			}
		}
	}
	return nil
}

// isToken reports whether a text can be the name of an HTTP header.
func isToken(text string) bool {
	return text != "" && !slices.ContainsFunc([]byte(text), func(b byte) bool {
		return b <= ' ' || b >= 0x7f || strings.IndexByte(`()<>@,;:\"/[]?={}`, b) >= 0
	})
}

func checkNumbers(env environment) error {
	names := append(otlp("TIMEOUT"), "OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT",
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE")
	for _, name := range names {
		_, text := env.get(name)
		if n, err := strconv.Atoi(text); text != "" && (err != nil || n < 1 || n > maxQueue) {
			return invalid(name, "is %.80q; it must be 1 to %d", text, maxQueue)
		}
	}
	return nil
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
