package asyncflow_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const unitFile = "deploy/systemd/asyncflow.service"

// deployedSettings returns the variables of a node that the files under deploy set, by file.
func deployedSettings(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	variable := regexp.MustCompile(`\b(?:ASYNCFLOW|DATABASE|PG)_?[A-Z_]+\b`)
	files := append(filesOf(t, "deploy/kubernetes/*.yaml"), filesOf(t, "deploy/systemd/*")...)
	files = append(files, filesOf(t, "deploy/helm/asyncflow/values*")...)
	files = append(files, filesOf(t, "deploy/check/testdata/*.yaml")...)
	for _, file := range files {
		text := readText(t, file)
		// a pattern of the schema
		text = strings.ReplaceAll(text, "^(ASYNCFLOW|PG|OTEL)[A-Z_]*$", "")
		found[filepath.ToSlash(file)] = variable.FindAllString(text, -1)
	}
	require.Greater(t, len(found), 8)
	return found
}

// The program knows each variable that the files under deploy set.
func TestDeployedSettingsExist(t *testing.T) {
	t.Parallel()
	settings := settingsOf(t, "cmd/asyncflow")
	for file, variables := range deployedSettings(t) {
		for _, name := range variables {
			if name != "PGPASSWORD" { // pgx reads it
				assert.Contains(t, settings, name, file)
			}
		}
	}
}

// deployedPod is what is checked of a Deployment.
type deployedPod struct {
	Kind string
	Spec struct {
		Template struct {
			Spec struct {
				TerminationGracePeriodSeconds int
				Containers                    []struct {
					Env            []struct{ Name, Value string }
					ReadinessProbe struct {
						PeriodSeconds, TimeoutSeconds, FailureThreshold int
					}
				}
			}
		}
	}
}

// Nobody kills a node before it ends by itself: what runs it shows more patience than its grace,
// and than its drain delay and the 5 s after it. While the API drains, probes notice.
func TestDeployedNodesEndInTime(t *testing.T) {
	t.Parallel()
	pods := 0
	for _, file := range filesOf(t, "deploy/kubernetes/*-deployment.yaml") {
		var d deployedPod
		require.NoError(t, yaml.Unmarshal([]byte(readText(t, file)), &d), file)
		require.Equal(t, "Deployment", d.Kind)
		pod := d.Spec.Template.Spec
		env := map[string]string{}
		for _, v := range pod.Containers[0].Env {
			env[v.Name] = v.Value
		}
		drain := checkPatience(t, file, env["ASYNCFLOW_GRACE"], env["ASYNCFLOW_DRAIN_DELAY"],
			time.Duration(pod.TerminationGracePeriodSeconds)*time.Second)
		probe := pod.Containers[0].ReadinessProbe
		assert.Less(t, time.Duration(probe.PeriodSeconds*probe.FailureThreshold)*time.Second, drain)
		pods++
	}
	require.Equal(t, 2, pods)

	example := readText(t, "deploy/systemd/asyncflow.env.example")
	patience, err := time.ParseDuration(match(t, `(?m)^TimeoutStopSec=(\d+)$`,
		readText(t, unitFile)) + "s")
	require.NoError(t, err)
	checkPatience(t, unitFile, match(t, `(?m)^ASYNCFLOW_GRACE=(.+)$`, example),
		match(t, `(?m)^ASYNCFLOW_DRAIN_DELAY=(.+)$`, example), patience)

	settings := settingsOf(t, "cmd/asyncflow")
	compose := "docker-compose.yml"
	patience, err = time.ParseDuration(match(t, `\n  stop_grace_period: (\w+)`,
		readText(t, compose)))
	require.NoError(t, err)
	checkPatience(t, compose, settings["ASYNCFLOW_GRACE"].def,
		settings["ASYNCFLOW_DRAIN_DELAY"].def, patience)
}

// checkPatience checks how long a node may take to end, and returns its drain delay.
func checkPatience(
	t *testing.T, file, grace, drain string, patience time.Duration,
) time.Duration {
	t.Helper()
	g, err := time.ParseDuration(grace)
	require.NoError(t, err, file)
	d, err := time.ParseDuration(drain)
	require.NoError(t, err, file)
	const requests, writes = 5 * time.Second, 10 * time.Second
	assert.GreaterOrEqual(t, patience, max(g, d+requests)+writes, file)
	return d
}

// match returns what the group of a pattern matches in a text.
func match(t *testing.T, pattern, text string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	require.NotNil(t, m, pattern)
	return m[1]
}

// The version of the chart is that of the contract.
func TestVersionOfTheChart(t *testing.T) {
	t.Parallel()
	var chart struct{ AppVersion string }
	require.NoError(t, yaml.Unmarshal([]byte(readText(t, "deploy/helm/asyncflow/Chart.yaml")),
		&chart))
	var contract struct{ Info struct{ Version string } }
	require.NoError(t, yaml.Unmarshal([]byte(readText(t, "openapi.yaml")), &contract))
	require.Equal(t, contract.Info.Version, chart.AppVersion)
}

// systemd finds little to which the unit is exposed, and understands each line of it.
func TestSystemdUnitIsHardened(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	cmd := exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--no-pager",
		unitFile)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if strings.Contains(complaints.String(), "unrecognized option") {
		t.Skipf("systemd-analyze is too old: %s", complaints.String())
	}
	require.NoError(t, err, "%s", complaints.String())
	require.Empty(t, complaints.String())
	level := match(t, `Overall exposure level for asyncflow\.service: (\d+\.\d+)`, string(out))
	exposure, err := strconv.ParseFloat(level, 64)
	require.NoError(t, err)
	require.LessOrEqual(t, exposure, 2.0, "%s", out)
}
