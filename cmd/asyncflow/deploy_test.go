package main

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// The files under deploy are run here without containers, Kubernetes or systemd: the program is
// started with the arguments and the environment that they give.

// manifest is what the tests need of a manifest for Kubernetes.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		Template struct {
			Spec struct {
				TerminationGracePeriodSeconds int
				Containers                    []podContainer
			}
		}
	}
}

type podContainer struct {
	Args []string
	Env  []struct {
		Name, Value string
		ValueFrom   *struct {
			SecretKeyRef struct {
				Name, Key string
				Optional  bool
			}
		}
	}
	Ports []struct {
		Name          string
		ContainerPort int
	}
	StartupProbe, LivenessProbe, ReadinessProbe podProbe
}

type podProbe struct {
	HTTPGet struct{ Path, Port string }
}

// readManifests returns the manifests by their kinds and names.
func readManifests(t *testing.T) map[string]manifest {
	t.Helper()
	files, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	require.NoError(t, err)
	all := map[string]manifest{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, part := range strings.Split(string(text), "\n---\n") {
			var m manifest
			require.NoError(t, yaml.Unmarshal([]byte(part), &m), file)
			all[m.Kind+" "+m.Metadata.Name] = m
		}
	}
	return all
}

// environment returns the variables of a container. A key that its Secret lacks is an error, unless
// it is optional.
func (c podContainer) environment(t *testing.T, secret map[string]string) map[string]string {
	t.Helper()
	env := map[string]string{}
	for _, v := range c.Env {
		if v.ValueFrom == nil {
			env[v.Name] = v.Value
			continue
		}
		from := v.ValueFrom.SecretKeyRef
		value, ok := secret[from.Key]
		require.True(t, ok || from.Optional, "%s: the Secret has no key %s", v.Name, from.Key)
		if ok {
			env[v.Name] = value
		}
	}
	return env
}

// pairs returns an environment as a process takes it.
func pairs(env map[string]string) (all []string) {
	for name, value := range env {
		all = append(all, name+"="+value)
	}
	return all
}

// pod is a container that runs as a process, with the addresses of its ports.
type pod struct {
	*process
	container podContainer
	address   map[string]string
}

var metricsLine = regexp.MustCompile(`metrics are served.*listen"?[=:]"?([^\s"]+)`)

// metricsURL returns the address of the metrics, which a node logs about when it is ready.
func (p *process) metricsURL() string {
	p.t.Helper()
	var found []string
	require.Eventually(p.t, func() bool {
		found = metricsLine.FindStringSubmatch(p.said())
		return found != nil
	}, patience, 10*time.Millisecond)
	return "http://" + found[1]
}

// startPod starts the program as a container of a Deployment, on addresses of this machine, with
// workers on this machine allowed.
func startPod(t *testing.T, m manifest, secret map[string]string, publicURL string) *pod {
	t.Helper()
	c := m.Spec.Template.Spec.Containers[0]
	env := c.environment(t, secret)
	require.Equal(t, "http://asyncflow.asyncflow.svc:8080", env["ASYNCFLOW_PUBLIC_URL"])
	p := &pod{container: c, address: map[string]string{}}
	settings := map[string]string{"http": "ASYNCFLOW_LISTEN", "metrics": "ASYNCFLOW_METRICS"}
	for _, port := range c.Ports {
		require.Equal(t, fmt.Sprint(":", port.ContainerPort), env[settings[port.Name]])
		env[settings[port.Name]] = "127.0.0.1:0"
	}
	maps.Copy(env, map[string]string{"ASYNCFLOW_PUBLIC_URL": publicURL, "ASYNCFLOW_ALLOW_HTTP": "1",
		"ASYNCFLOW_ALLOW_PRIVATE_NETWORKS": "1", "ASYNCFLOW_VERIFY_ENDPOINTS": "false"})
	p.process = start(t, pairs(env), c.Args...)
	require.NotEmpty(t, p.url, p.said())
	p.address["http"] = p.url
	p.address["metrics"] = p.metricsURL()
	return p
}

// probe returns the status that a probe gets; 0: no answer.
func (p *pod) probe(of podProbe) int {
	resp, err := http.Get(p.address[of.HTTPGet.Port] + of.HTTPGet.Path)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

func (p *pod) isReady() bool { return p.probe(p.container.ReadinessProbe) == 200 }

// The pods of the manifests do their work together: the Job migrates, nodes with the API take a
// task, nodes without it deliver it. Their probes answer, and when a pod must end, it first is not
// ready, then finishes what it does, and ends before it would be killed.
func TestKubernetesPods(t *testing.T) {
	t.Parallel()
	manifests := readManifests(t)
	secret := map[string]string{"database-url": pgtest.Database(t, nil), "secret": testSecret,
		"jwt-secret": testJWTSecret}
	job := manifests["Job asyncflow-migrate-0-1-0"].Spec.Template.Spec.Containers
	require.Len(t, job, 1)
	migrate := start(t, pairs(job[0].environment(t, secret)), job[0].Args...)
	require.Zero(t, migrate.wait(), migrate.said())
	tenants := start(t, pairs(job[0].environment(t, secret)), "tenants", "create", testTenant)
	require.Zero(t, tenants.wait(), tenants.said())

	service := startBalancer(t)
	api := startPod(t, manifests["Deployment asyncflow-api"], secret, service.URL)
	service.add(api.process)
	delete(secret, "jwt-secret") // nodes without the API need none
	dispatcher := startPod(t, manifests["Deployment asyncflow-dispatcher"], secret, service.URL)
	for _, p := range []*pod{api, dispatcher} {
		assert.Equal(t, 200, p.probe(p.container.StartupProbe))
		assert.Equal(t, 200, p.probe(p.container.LivenessProbe))
		assert.Equal(t, 200, p.probe(p.container.ReadinessProbe))
	}
	begun, end := make(chan struct{}, 100), make(chan struct{})
	w := startWorker(t, func(http.ResponseWriter, *http.Request, delivery) {
		begun <- struct{}{}
		<-end
	})
	spec := oneStage()
	spec.Stages[0].Timeout = asyncflow.NewDuration(patience)
	w.pipe(t, api.client(), spec)
	ids := submitMany(t, api.client(), 1)
	<-begun

	for _, p := range []*pod{dispatcher, api} {
		stopped := time.Now()
		p.signal(syscall.SIGTERM)
		require.Eventually(t, func() bool { return !p.isReady() }, patience, 10*time.Millisecond)
		assert.Equal(t, "metrics", p.container.LivenessProbe.HTTPGet.Port, "until it ends")
		if p == dispatcher { // the attempt keeps it
			assert.Equal(t, 200, p.probe(p.container.LivenessProbe))
			close(end)
			awaitAll(t, api.client(), ids)
		}
		require.Zero(t, p.wait(), p.said())
		pod := manifests["Deployment asyncflow-api"].Spec.Template.Spec
		assert.Less(t, time.Since(stopped),
			time.Duration(pod.TerminationGracePeriodSeconds)*time.Second+patience/2,
			"with time for a slow machine")
	}
	require.Len(t, w.deliveries(), 1)
	assert.Equal(t, 1, w.deliveries()[0].Attempt)
}

// The unit of systemd starts a node with the settings of its example file, once its secrets are
// filled in.
func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile("../../deploy/systemd/asyncflow.service")
	require.NoError(t, err)
	command := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/asyncflow (.+)$`).
		FindStringSubmatch(string(unit))
	require.NotNil(t, command)
	example, err := os.ReadFile("../../deploy/systemd/asyncflow.env.example")
	require.NoError(t, err)
	env := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^([A-Z_]+)=(.*)$`).FindAllStringSubmatch(
		string(example), -1) {
		env[m[1]] = m[2]
	}
	for _, name := range []string{"ASYNCFLOW_SECRET", "ASYNCFLOW_JWT_SECRET", "PGPASSWORD"} {
		require.Contains(t, env, name)
		require.Empty(t, env[name], "no secret has a value that everyone knows")
	}
	require.Equal(t, "127.0.0.1:8080", env["ASYNCFLOW_LISTEN"])
	require.Equal(t, "127.0.0.1:9090", env["ASYNCFLOW_METRICS"])
	maps.Copy(env, map[string]string{"DATABASE_URL": database(t), "ASYNCFLOW_SECRET": testSecret,
		"ASYNCFLOW_JWT_SECRET": testJWTSecret, "ASYNCFLOW_LISTEN": "127.0.0.1:0",
		"ASYNCFLOW_METRICS": "127.0.0.1:0", "ASYNCFLOW_DRAIN_DELAY": "0s"})
	delete(env, "PGPASSWORD")
	p := start(t, pairs(env), strings.Fields(command[1])...)
	require.NotEmpty(t, p.url, p.said())
	require.Equal(t, 200, p.status("", "/readyz"))
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.wait(), p.said())
}

// The probes are at the metrics' address: they report whether the database is there, whatever the
// roles of the node are, and that the node stops.
func TestProbesBesideTheMetrics(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Config{})
	url := server.URL("postgres")
	require.NoError(t, prepareDatabase(t.Context(), url))
	p := start(t, append(nodeEnv(url), "ASYNCFLOW_PUBLIC_URL=http://127.0.0.1:1"), "serve",
		"--roles=dispatcher,governance", "--metrics=127.0.0.1:0")
	url = p.metricsURL()
	status := func(path string) int {
		code, _ := get(t, url+path)
		return code
	}
	assert.Equal(t, 200, status("/healthz"))
	assert.Equal(t, 200, status("/readyz"))
	assert.Equal(t, 404, status("/v1/tasks"))
	require.NoError(t, server.Kill())
	require.Eventually(t, func() bool { return status("/readyz") == 503 }, patience,
		20*time.Millisecond)
	assert.Equal(t, 200, status("/healthz"), "the process is alive")
	pgtest.Server(t, server.Config())
	require.Eventually(t, func() bool { return status("/readyz") == 200 }, patience,
		20*time.Millisecond)
}
