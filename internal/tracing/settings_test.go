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
		"OTEL_TRACES_EXPORTER":                         {"zipkin", "otlp,console", "OTLP"},
		"OTEL_EXPORTER_OTLP_PROTOCOL":                  {"http/json", "HTTP"},
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL":           {"thrift"},
		"OTEL_EXPORTER_OTLP_ENDPOINT":                  {"collector:4318", "ftp://x", "http://"},
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT":           {"/v1/traces", "http://a b/"},
		"OTEL_EXPORTER_OTLP_HEADERS":                   {"hunter2", "a=1,hunter2", "a b=hunter2", "a=hunter2%"},
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
