package tracing

import (
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
	plain       bool   // it exports without TLS to its default receiver
	root        sdktrace.Sampler
	parentBased bool
	propagates  bool // takes the header traceparent in, and gives it on
	queue       int  // spans that wait for their export
	links       int  // of a span, the last ones
	// secrets are the values of the headers of exports, without values too short to be one.
	secrets []string
}

const (
	exporterOTLP    = "otlp"
	exporterConsole = "console"
	protocolHTTP    = "http/protobuf"
	protocolGRPC    = "grpc"
	// minSecret is the length from which on the value of a header may be a secret, in bytes.
	minSecret = 6
	// maxQueue bounds OTEL_BSP_MAX_QUEUE_SIZE: a span takes about 2 KiB, and each of its links
	// 96 bytes.
	maxQueue = 1 << 20
	// defaultLinks is smaller than the SDK's default: as many claims as are exported at once, with
	// all of these links, are less than the 4 MiB that gRPC receives by default.
	defaultLinks = 32
	// maxLinks bounds OTEL_SPAN_LINK_COUNT_LIMIT: there are no more tasks in a claim.
	maxLinks = 1000
)

// environment reads variables. An empty one is as good as none, as the specification says.
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
		s.readProtocol, s.readSampler, s.readPropagators, s.readQueue, s.readLinks,
		s.readHeaders, s.checkEndpoints, checkNumbers, checkBooleans, s.readTLS, checkCertificates,
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
	return readNumber(env, "OTEL_BSP_MAX_QUEUE_SIZE", &s.queue, 1, maxQueue)
}

func (s *settings) readLinks(env environment) error {
	s.links = defaultLinks
	return readNumber(env, "OTEL_SPAN_LINK_COUNT_LIMIT", &s.links, 0, maxLinks)
}

// readNumber reads a variable into n, which stays as it is if there is none.
func readNumber(env environment, name string, n *int, least, most int) error {
	_, text := env.get(name)
	if text == "" {
		return nil
	}
	number, err := strconv.Atoi(text)
	if err != nil || number < least || number > most {
		return invalid(name, "is %.80q; it must be %d to %d", text, least, most)
	}
	*n = number
	return nil
}

// checkNumbers checks the numbers that only the SDK and the exporters use.
func checkNumbers(env environment) error {
	var n int
	for _, name := range append(otlp("TIMEOUT"), "OTEL_BSP_SCHEDULE_DELAY",
		"OTEL_BSP_EXPORT_TIMEOUT", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE") {
		if err := readNumber(env, name, &n, 1, maxQueue); err != nil {
			return err
		}
	}
	for _, name := range []string{"OTEL_ATTRIBUTE_COUNT_LIMIT", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
		"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
		"OTEL_SPAN_EVENT_COUNT_LIMIT", "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT",
		"OTEL_LINK_ATTRIBUTE_COUNT_LIMIT"} {
		if err := readNumber(env, name, &n, 0, maxQueue); err != nil {
			return err
		}
	}
	return nil
}

func checkBooleans(env environment) error {
	for _, name := range append(otlp("INSECURE"), "OTEL_SDK_DISABLED") {
		_, text := env.get(name)
		if text != "" && !strings.EqualFold(text, "true") && !strings.EqualFold(text, "false") {
			return invalid(name, "is %.80q; it must be true or false", text)
		}
	}
	return nil
}
