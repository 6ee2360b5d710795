package check

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	psapi "k8s.io/pod-security-admission/api"
	pspolicy "k8s.io/pod-security-admission/policy"
)

// variants are values for which the chart is checked, by the name of the test.
func variants(t *testing.T) map[string]map[string]any {
	return map[string]map[string]any{
		"defaults":   nil,
		"everything": readValues(t, "testdata/everything.yaml"),
		"together":   readValues(t, "testdata/together.yaml"),
	}
}

// decode reads a document as the API server does with fieldValidation Strict: unknown and repeated
// fields, and values of another kind, are errors.
func decode(t *testing.T, document string) runtime.Object {
	t.Helper()
	codecs := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict)
	object, _, err := codecs.UniversalDeserializer().Decode([]byte(document), nil, nil)
	require.NoError(t, err, "%s", document)
	return object
}

// objects renders the chart, and decodes what it renders.
func objects(t *testing.T, values map[string]any) (all []runtime.Object) {
	t.Helper()
	rendered, err := render(t, values)
	require.NoError(t, err)
	for _, document := range documents(rendered) {
		all = append(all, decode(t, document))
	}
	return all
}

// pods returns the templates of pods, by the names of their owners.
func pods(all []runtime.Object) map[string]corev1.PodTemplateSpec {
	found := map[string]corev1.PodTemplateSpec{}
	for _, object := range all {
		switch o := object.(type) {
		case *appsv1.Deployment:
			found[o.Name] = o.Spec.Template
		case *batchv1.Job:
			found[o.Name] = o.Spec.Template
		}
	}
	return found
}

// The API server takes every object: its own validation, with its defaults, finds nothing.
func TestObjectsAreValid(t *testing.T) {
	for name, values := range variants(t) {
		t.Run(name, func(t *testing.T) {
			for _, object := range objects(t, values) {
				for _, err := range validate(t, object) {
					t.Errorf("%s: %v", nameOf(object), err)
				}
			}
		})
	}
}

// The rules find what is wrong.
func TestValidationFinds(t *testing.T) {
	text := func(name string) string {
		rendered, err := render(t, nil)
		require.NoError(t, err)
		return rendered[name]
	}
	codecs := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict)
	wrong := strings.Replace(text("api-deployment.yaml"), "replicas:", "replica:", 1)
	_, _, err := codecs.UniversalDeserializer().Decode([]byte(wrong), nil, nil)
	require.ErrorContains(t, err, `unknown field "spec.replica"`)
	for _, c := range []struct{ file, from, to, says string }{
		{"api-deployment.yaml", "path: /readyz, port: http", "path: /readyz, port: 70000",
			"readinessProbe.httpGet.port"},
		{"api-deployment.yaml", "component: api\n  strategy", "component: other\n  strategy",
			"`selector` does not match"},
		{"networkpolicies.yaml", "port: 5432", "port: 654321", "port"},
		{"migrate-job.yaml", "restartPolicy: Never", "restartPolicy: Always", "restartPolicy"},
	} {
		t.Run(c.to, func(t *testing.T) {
			broken := strings.Replace(text(c.file), c.from, c.to, 1)
			require.NotEqual(t, text(c.file), broken)
			var found []string
			for _, document := range documents(map[string]string{c.file: broken}) {
				for _, err := range validate(t, decode(t, document)) {
					found = append(found, err.Error())
				}
			}
			require.Contains(t, strings.Join(found, "\n"), c.says)
		})
	}
}

// Every pod meets the strictest of the pod security standards, which the namespace enforces.
func TestPodsAreRestricted(t *testing.T) {
	evaluator, err := pspolicy.NewEvaluator(pspolicy.DefaultChecks())
	require.NoError(t, err)
	restricted := psapi.LevelVersion{Level: psapi.LevelRestricted, Version: psapi.LatestVersion()}
	for name, values := range variants(t) {
		t.Run(name, func(t *testing.T) {
			found := pods(objects(t, values))
			require.NotEmpty(t, found)
			for owner, pod := range found {
				results := evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec)
				sum := pspolicy.AggregateCheckResults(results)
				assert.True(t, sum.Allowed, "%s: %s", owner, sum.ForbiddenDetail())
				for _, c := range pod.Spec.Containers {
					assert.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, owner)
					assert.NotEmpty(t, c.Resources.Requests, owner)
					assert.Contains(t, c.Resources.Limits, corev1.ResourceMemory, owner)
				}
				assert.False(t, *pod.Spec.AutomountServiceAccountToken, owner)
				assert.False(t, *pod.Spec.EnableServiceLinks,
					"%s: variables such as ASYNCFLOW_PORT", owner)
			}
		})
	}
}

// Each selector finds pods. There is a budget and a policy for each pod but a Job's. It opens the
// ports that services and probes name.
func TestObjectsFitTogether(t *testing.T) {
	for name, values := range variants(t) {
		t.Run(name, func(t *testing.T) {
			all := objects(t, values)
			templates := pods(all)
			chosen := map[string]map[string]bool{} // kinds of the objects that choose a pod, by pod
			for _, object := range all {
				selector, kind := selectorOf(t, object)
				if selector == nil {
					continue
				}
				any := false
				for owner, pod := range templates {
					if selector.Matches(labels.Set(pod.Labels)) {
						any = true
						if chosen[owner] == nil {
							chosen[owner] = map[string]bool{}
						}
						chosen[owner][kind] = true
					}
				}
				assert.True(t, any, "%s chooses no pod", nameOf(object))
			}
			_, policies := chosen["asyncflow-api"]["NetworkPolicy"]
			for owner, pod := range templates {
				assert.Equal(t, policies, chosen[owner]["NetworkPolicy"], owner)
				if pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
					assert.True(t, chosen[owner]["PodDisruptionBudget"], owner)
					assert.True(t, chosen[owner]["Service"], "%s: for the metrics", owner)
				}
				checkPorts(t, owner, pod)
			}
		})
	}
}

func selectorOf(t *testing.T, object runtime.Object) (labels.Selector, string) {
	t.Helper()
	var by *metav1.LabelSelector
	kind := object.GetObjectKind().GroupVersionKind().Kind
	switch o := object.(type) {
	case *corev1.Service:
		return labels.SelectorFromSet(o.Spec.Selector), kind
	case *policyv1.PodDisruptionBudget:
		by = o.Spec.Selector
	case *networkingv1.NetworkPolicy:
		by = &o.Spec.PodSelector
	default:
		return nil, kind
	}
	selector, err := metav1.LabelSelectorAsSelector(by)
	require.NoError(t, err)
	return selector, kind
}

// checkPorts checks that the ports that probes name are ports of the container.
func checkPorts(t *testing.T, owner string, pod corev1.PodTemplateSpec) {
	t.Helper()
	for _, c := range pod.Spec.Containers {
		ports := map[string]bool{}
		for _, p := range c.Ports {
			ports[p.Name] = true
		}
		for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			if probe != nil {
				assert.Contains(t, ports, probe.HTTPGet.Port.String(), owner)
			}
		}
	}
}

// No secret is in a manifest: each comes from a Secret that the operator makes.
func TestSecretsAreReferences(t *testing.T) {
	for name, values := range variants(t) {
		t.Run(name, func(t *testing.T) {
			for owner, pod := range pods(objects(t, values)) {
				for _, v := range pod.Spec.Containers[0].Env {
					secret := v.Name == "DATABASE_URL" || v.Name == "PGPASSWORD" ||
						strings.Contains(v.Name, "SECRET") || strings.HasSuffix(v.Name, "_HEADERS")
					assert.Equal(t, secret, v.ValueFrom != nil, "%s: %s", owner, v.Name)
				}
			}
		})
	}
}

func nameOf(object runtime.Object) string {
	accessor, ok := object.(metav1.Object)
	if !ok {
		return fmt.Sprintf("%T", object)
	}
	return object.GetObjectKind().GroupVersionKind().Kind + " " + accessor.GetName()
}

// egressPorts returns the ports to which the policy of a part lets its pods connect, with the peers
// that are named.
func egressPorts(t *testing.T, rendered map[string]string, part string) map[string]int {
	t.Helper()
	ports := map[string]int{}
	for _, document := range documents(rendered) {
		o, ok := decode(t, document).(*networkingv1.NetworkPolicy)
		if !ok || o.Name != "asyncflow-"+part {
			continue
		}
		require.Empty(t, validate(t, o))
		for _, rule := range o.Spec.Egress {
			for _, p := range rule.Ports {
				ports[p.Port.String()] = len(rule.To)
			}
		}
	}
	return ports
}

// Nodes reach the collector of traces only if it is asked for, by the chart's value or by taking
// the comment out of the plain manifest; the migration never does.
func TestCollectorIsReachedIfAskedFor(t *testing.T) {
	off, err := render(t, nil)
	require.NoError(t, err)
	asked, err := render(t, map[string]any{
		"networkPolicy": map[string]any{"collectorPort": 4318}})
	require.NoError(t, err)
	peers, err := render(t, variants(t)["everything"])
	require.NoError(t, err)
	const file = "networkpolicies.yaml"
	edited := map[string]string{file: strings.NewReplacer("    # - ports:", "    - ports:",
		"    #     - {port: 4318", "        - {port: 4318").Replace(off[file])}
	require.NotEqual(t, off[file], edited[file])
	for _, part := range []string{"api", "dispatcher"} {
		assert.NotContains(t, egressPorts(t, off, part), "4318", part)
		assert.Equal(t, egressPorts(t, asked, part), egressPorts(t, edited, part), part)
		assert.Zero(t, egressPorts(t, asked, part)["4318"], part)
		assert.Contains(t, egressPorts(t, asked, part), "4318", part)
		assert.Equal(t, 1, egressPorts(t, peers, part)["4318"], part)
	}
	assert.NotContains(t, egressPorts(t, peers, "migrate"), "4318")
	assert.NotContains(t, egressPorts(t, edited, "migrate"), "4318")
}
