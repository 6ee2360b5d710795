package check

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"sigs.k8s.io/yaml"
)

const (
	chartDir = "../helm/asyncflow"
	plainDir = "../kubernetes"
)

var write = flag.Bool("write", false, "write the plain manifests again")

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	require.NoError(t, err)
	return c
}

// render renders the chart with values, as helm template does for the release asyncflow in the
// namespace of that name. It returns the text of each template with one, by its file.
func render(t *testing.T, values map[string]any) (map[string]string, error) {
	t.Helper()
	c := loadChart(t)
	release := chartutil.ReleaseOptions{Name: "asyncflow", Namespace: "asyncflow", Revision: 1,
		IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	texts, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	rendered := map[string]string{}
	for name, text := range texts {
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(text) != "" {
			rendered[filepath.Base(name)] = text
		}
	}
	return rendered, nil
}

// readValues returns the values in a file.
func readValues(t *testing.T, file string) (values map[string]any) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(text, &values))
	return values
}

// header is at the beginning of each plain manifest.
const header = "# Made from deploy/helm/asyncflow by make deploy. Don't edit it.\n"

// plain returns a rendered template as a manifest that kubectl applies.
func plain(text string) string {
	text = strings.TrimPrefix(strings.TrimSpace(text), "---\n")
	text = strings.ReplaceAll(text, "app.kubernetes.io/managed-by: Helm\n",
		"app.kubernetes.io/managed-by: kubectl\n")
	text = regexp.MustCompile(`(?m)^ +helm\.sh/.*\n`).ReplaceAllString(text, "")
	text = regexp.MustCompile(`(?m)^ +annotations:\n(spec:)`).ReplaceAllString(text, "$1")
	text = regexp.MustCompile(`(?m)^ *\n`).ReplaceAllString(text, "")
	return header + text + "\n"
}

// namespaceFile is a manifest that the chart lacks: helm makes the namespace, or it is there.
const namespaceFile = "namespace.yaml"

// The plain manifests are what the chart renders with its default values.
func TestPlainManifestsAreTheChart(t *testing.T) {
	rendered, err := render(t, nil)
	require.NoError(t, err)
	if *write {
		for name, text := range rendered {
			file := filepath.Join(plainDir, name)
			require.NoError(t, os.WriteFile(file, []byte(plain(text)), 0o644))
		}
	}
	files, err := filepath.Glob(filepath.Join(plainDir, "*.yaml"))
	require.NoError(t, err)
	names := []string{namespaceFile}
	for name, text := range rendered {
		names = append(names, name)
		got, err := os.ReadFile(filepath.Join(plainDir, name))
		require.NoError(t, err, "run make deploy")
		require.Equal(t, plain(text), string(got), "%s is out of date: run make deploy", name)
	}
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	require.ElementsMatch(t, names, files)
}

// Helm's own checks of the chart find nothing.
func TestLint(t *testing.T) {
	result := lint.AllWithKubeVersion(chartDir, nil, "asyncflow", nil)
	for _, m := range result.Messages {
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
}

// Values that would make a node that can't start, or that stop the wrong one, are refused by their
// schema.
func TestWrongValues(t *testing.T) {
	for name, values := range map[string]string{
		"unknown":                   "replicas: 3",
		"a typing error":            "api: {replica: 3}",
		"no replicas":               "api: {replicas: 0}",
		"a secret in the config":    "config: {ASYNCFLOW_SECRET: 0123456789abcdef0123456789abcdef}",
		"a header that is a secret": "config: {OTEL_EXPORTER_OTLP_HEADERS: key=0123456789}",
		"a port that is none":       "networkPolicy: {collectorPort: 65536}",
		"a setting of the chart":    "config: {ASYNCFLOW_GRACE: 1h}",
		"no secret of the nodes":    "secrets: {ASYNCFLOW_SECRET: null}",
		"a digest that is none":     "image: {digest: latest}",
		"a grace with a unit":       "graceSeconds: 30s",
		"a public URL by no HTTP":   "publicURL: tasks.example.com",
	} {
		t.Run(name, func(t *testing.T) {
			var v map[string]any
			require.NoError(t, yaml.Unmarshal([]byte(values), &v))
			_, err := render(t, v)
			require.ErrorContains(t, err, "values don't meet the specifications of the schema")
		})
	}
}

// documents returns the documents of rendered templates, in the order of the files' names.
func documents(rendered map[string]string) (all []string) {
	for name, text := range rendered {
		for i, part := range regexp.MustCompile(`(?m)^---\n`).Split(text, -1) {
			if strings.TrimSpace(part) != "" {
				all = append(all, fmt.Sprintf("# %s %d\n%s", name, i, part))
			}
		}
	}
	slices.Sort(all)
	return all
}
