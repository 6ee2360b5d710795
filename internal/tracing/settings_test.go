package tracing_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/tracing"
)

// Without an exporter nothing is set up, whatever the other variables are.
func TestOffByDefault(t *testing.T) {
	for _, all := range []map[string]string{
		{},
		{"OTEL_TRACES_EXPORTER": ""},
		{"OTEL_TRACES_EXPORTER": "none"},
		{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "True"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_TRACES_SAMPLER": "what"},
	} {
		tracer, err := tracing.Start(t.Context(), tracing.Config{Env: env(all)})
		require.NoError(t, err)
		require.Nil(t, tracer)
		tracer.Stop(t.Context())
	}
}

// A value that can't be used is an error that names the variable. No secret is shown.
func TestBadVariables(t *testing.T) {
	for name, values := range map[string][]string{
		"OTEL_TRACES_EXPORTER":               {"zipkin", "otlp,console", "OTLP"},
		"OTEL_EXPORTER_OTLP_PROTOCOL":        {"http/json", "HTTP"},
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": {"thrift"},
		"OTEL_EXPORTER_OTLP_ENDPOINT": {"collector:4318", "ftp://x", "http://", "http://:4318",
			"http://me:hunter2@collector:4318", "http://collector:4318?key=hunter2",
			"http://collector:4318/#hunter2", "http://collector:4318#", "http://collector:4318?"},
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": {"/v1/traces", "http://a b/", "http://me@collector"},
		"OTEL_EXPORTER_OTLP_HEADERS": {"hunter2", "a=1,hunter2", "a b=hunter2", "a=hunter2%",
			"a=hunter2%0D%0Ac", "a=%00hunter2", "a=hunter2%7Fhunter2"},
		"OTEL_EXPORTER_OTLP_TIMEOUT":                   {"10s", "0", "-1"},
		"OTEL_EXPORTER_OTLP_COMPRESSION":               {"zstd"},
		"OTEL_EXPORTER_OTLP_CERTIFICATE":               {"/nowhere.pem", "settings_test.go"},
		"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE":        {"/nowhere.pem"},
		"OTEL_TRACES_SAMPLER":                          {"jaeger_remote", "parentbased_", "off"},
		"OTEL_TRACES_SAMPLER_ARG":                      {"1%", "-0.1", "1.1", "NaN"},
		"OTEL_PROPAGATORS":                             {"b3", "tracecontext,jaeger"},
		"OTEL_BSP_MAX_QUEUE_SIZE":                      {"0", "many", "100000000"},
		"OTEL_BSP_SCHEDULE_DELAY":                      {"5s"},
		"OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE":        {"/nowhere.pem"},
		"OTEL_EXPORTER_OTLP_TRACES_HEADERS":            {"=hunter2"},
		"OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE": {"settings_test.go"},
		"OTEL_SPAN_LINK_COUNT_LIMIT":                   {"many", "-1", "1001"},
		"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT":              {"1.5"},
		"OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT":       {"1k"},
		"OTEL_SPAN_EVENT_COUNT_LIMIT":                  {"x"},
		"OTEL_ATTRIBUTE_COUNT_LIMIT":                   {"x"},
		"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT":            {"x"},
		"OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT":             {"x"},
		"OTEL_LINK_ATTRIBUTE_COUNT_LIMIT":              {"x"},
		"OTEL_EXPORTER_OTLP_INSECURE":                  {"yes", "1"},
		"OTEL_EXPORTER_OTLP_TRACES_INSECURE":           {"no"},
		"OTEL_SDK_DISABLED":                            {"1", "yes"},
	} {
		for _, value := range values {
			t.Run(name+"="+value, func(t *testing.T) {
				all := map[string]string{"OTEL_TRACES_EXPORTER": "otlp",
					"OTEL_TRACES_SAMPLER": "traceidratio", name: value}
				tracer, err := tracing.Start(t.Context(), tracing.Config{Env: env(all),
					Log: slog.New(slog.DiscardHandler)})
				require.Nil(t, tracer)
				require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
				require.ErrorContains(t, err, name)
				require.NotContains(t, err.Error(), "hunter2")
			})
		}
	}
}

// gRPC can carry less than HTTP, and knows no paths.
func TestBadVariablesForGRPC(t *testing.T) {
	for _, one := range []struct {
		name, value string
		http, grpc  bool
	}{
		{"OTEL_EXPORTER_OTLP_HEADERS", "x!key=hunter2", true, false},
		{"OTEL_EXPORTER_OTLP_HEADERS", "key=hünter2", true, false},
		{"OTEL_EXPORTER_OTLP_HEADERS", "key=hunter2%09hunter2", true, false},
		{"OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20hunter2,x_y.z-1=2", true, true},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317/v1", true, false},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317/", true, true},
		{"OTEL_EXPORTER_OTLP_INSECURE", "TRUE", true, true},
		{"OTEL_SPAN_LINK_COUNT_LIMIT", "0", true, true},
	} {
		for protocol, good := range map[string]bool{"http/protobuf": one.http, "grpc": one.grpc} {
			t.Run(protocol+" "+one.name+"="+one.value, func(t *testing.T) {
				all := map[string]string{"OTEL_TRACES_EXPORTER": "otlp",
					"OTEL_EXPORTER_OTLP_PROTOCOL": protocol, one.name: one.value}
				tracer, err := tracing.Start(t.Context(), tracing.Config{Env: env(all),
					Log: slog.New(slog.DiscardHandler)})
				defer stop(tracer, patience)
				if good {
					require.NoError(t, err)
					return
				}
				require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
				require.ErrorContains(t, err, one.name)
				require.NotContains(t, err.Error(), "nter2")
			})
		}
	}
}

// The URL says whether exports use TLS. A variable that says otherwise is refused: spans and tokens
// would go without TLS to an https URL.
func TestInsecureGoesWithTheURL(t *testing.T) {
	for _, one := range []struct {
		url, insecure string
		good          bool
	}{
		{"https://127.0.0.1:4318", "true", false},
		{"HTTPS://127.0.0.1:4318", "TRUE", false},
		{"https://127.0.0.1:4318", "false", true},
		{"http://127.0.0.1:4318", "false", false},
		{"http://127.0.0.1:4318", "true", true},
		{"", "false", true},
		{"", "true", true},
	} {
		for _, infix := range []string{"", "TRACES_"} {
			for _, protocol := range []string{"http/protobuf", "grpc"} {
				name := "OTEL_EXPORTER_OTLP_" + infix + "INSECURE"
				t.Run(protocol+" "+one.url+" "+name+"="+one.insecure, func(t *testing.T) {
					all := map[string]string{"OTEL_TRACES_EXPORTER": "otlp",
						"OTEL_EXPORTER_OTLP_PROTOCOL":        protocol,
						"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": one.url, name: one.insecure}
					setEnv(t, all)
					tracer, err := tracing.Start(t.Context(), tracing.Config{Env: env(all),
						Log: slog.New(slog.DiscardHandler)})
					defer stop(tracer, patience)
					if one.good {
						require.NoError(t, err)
						return
					}
					require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
					require.ErrorContains(t, err, name)
				})
			}
		}
	}
}
