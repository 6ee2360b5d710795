package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/otlptest"
)

const observability = "../../deploy/observability"

// exported are the values of each label of each metric that a node shows.
type exported map[string]map[string][]string

// values returns the values of a metric's label.
func (e exported) values(metric, label string) []string { return e[metric][label] }

// A node's metrics follow Prometheus' conventions, all are in the manual, and the dashboard and the
// alert rules use no other ones, nor labels or values that are not theirs.
func TestDashboardAndRulesUseMetricsOfANode(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	text := metricsOfABusyNode(t)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	known := parseMetrics(t, text)

	manual, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	for metric, labels := range known {
		name := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(metric, "")
		if !strings.HasPrefix(name, "asyncflow_") {
			continue
		}
		row := regexp.MustCompile("(?m)^\\| .*`" + name + "`.*$").FindString(string(manual))
		if !assert.NotEmpty(t, row, "docs/operations.md lacks %s", name) {
			continue
		}
		for label := range labels {
			assert.True(t, label == "le" || strings.Contains(strings.Split(row, "|")[2], label),
				"docs/operations.md lacks the label %s of %s", label, name)
		}
		assert.NotContains(t, labels, "job", "Prometheus gives each series this label itself")
		assert.NotContains(t, labels, "instance", "Prometheus gives each series this label itself")
	}

	expressions := append(ruleExpressions(t), dashboardExpressions(t)...)
	require.Greater(t, len(expressions), 60)
	for _, e := range expressions {
		for _, problem := range problemsOf(e, known) {
			t.Errorf("%s: %s", problem, e)
		}
	}
	t.Run("promtool", func(t *testing.T) { checkByPromtool(t, text, dashboardExpressions(t)) })
}

// metricsOfABusyNode returns the metrics of a node that did some of everything.
func metricsOfABusyNode(t *testing.T) string {
	t.Helper()
	issuers := filepath.Join(t.TempDir(), "issuers.yaml")
	secret := filepath.Join(filepath.Dir(issuers), "theirs")
	replace(t, secret, strings.Repeat("them", 8)+"\n")
	replace(t, issuers, "issuers: [{issuer: other, audience: asyncflow, secret_file: theirs}]")
	url := database(t)
	spans := otlptest.Start(t, nil)
	p := start(t, append(nodeEnv(url), "OTEL_TRACES_EXPORTER=otlp",
		"OTEL_EXPORTER_OTLP_ENDPOINT="+spans.URL), "serve", "--metrics=open",
		"--job=alerts=@every 1s", "--jwt-issuers-file="+issuers)
	require.NotEmpty(t, p.url, p.said())
	w := startWorker(t, func(w http.ResponseWriter, _ *http.Request, d delivery) {
		if string(d.Context) == `"bad"` {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	})
	spec := oneStage()
	spec.Retention = client.Retention{Context: client.NewDuration(time.Hour)}
	w.pipe(t, p.client(), spec)
	_, err := p.client().PutTaskType(t.Context(), "lost", client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "first"}}})
	require.NoError(t, err)
	r := runCLI(t, map[string]string{"ASYNCFLOW_URL": p.url, "ASYNCFLOW_TOKEN": testToken(t),
		"ASYNCFLOW_ENDPOINT_SECRET": testWebhook}, "alerts", "set", w.URL, "--failed-for-good=1")
	require.Zero(t, r.code, r.stderr)
	for _, task := range []client.NewTask{{Type: "pipe", Context: []byte(`"good"`)},
		{Type: "pipe", Context: []byte(`"bad"`)}, {Type: "lost", Context: []byte(`1`)}} {
		_, err := p.client().Submit(t.Context(), task)
		require.NoError(t, err)
	}
	var text string
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		beginAlertTurn(t, url, testTenant)
		_, text = get(t, p.url+"/metrics")
		for _, series := range []string{
			`asyncflow_alert_firing{alert="failed_for_good",subject="pipe",tenant="acme"} 1`,
			`asyncflow_backlog_tasks{tenant="acme",type="lost",waits_for="endpoint"} 1`,
			`asyncflow_finished_tasks_total{status="failed",tenant="acme",type="pipe"} 1`,
			`asyncflow_turnaround_seconds_count{tenant="acme",type="pipe"} 2`,
			`asyncflow_contents_overdue_seconds{tenant="acme"} 0`,
		} {
			assert.Contains(c, text, series+"\n")
		}
	}, patience, time.Second)
	return text
}

// parseMetrics returns the series of the text format. Histograms are there by their parts.
func parseMetrics(t *testing.T, text string) exported {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	require.NoError(t, err)
	all := exported{}
	for name, family := range families {
		names := []string{name}
		if family.Metric[0].Histogram != nil {
			names = []string{name + "_bucket", name + "_sum", name + "_count"}
		}
		for _, n := range names {
			all[n] = map[string][]string{}
			if strings.HasSuffix(n, "_bucket") {
				all[n]["le"] = nil
			}
			for _, m := range family.Metric {
				for _, l := range m.Label {
					all[n][l.GetName()] = append(all[n][l.GetName()], l.GetValue())
				}
			}
		}
	}
	return all
}

func ruleExpressions(t *testing.T) (all []string) {
	t.Helper()
	var rules struct {
		Groups []struct{ Rules []struct{ Expr string } }
	}
	readYAML(t, filepath.Join(observability, "rules.yaml"), &rules)
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			all = append(all, r.Expr)
		}
	}
	return all
}

// dashboardExpressions returns the expressions of all panels, and the selectors of the variables.
func dashboardExpressions(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(observability, "dashboard.json"))
	require.NoError(t, err)
	var dashboard struct {
		Panels     []struct{ Targets []struct{ Expr string } }
		Templating struct {
			List []struct{ Type, Definition string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	for _, v := range dashboard.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).FindStringSubmatch(v.Definition)
		require.NotNil(t, m, v.Definition)
		all = append(all, fmt.Sprintf("count by (%s) (%s)", m[2], m[1]))
	}
	return all
}

var (
	promTokens = regexp.MustCompile(
		`"(?:[^"\\]|\\.)*"|\[[^\]]*\]|[a-zA-Z_:][a-zA-Z0-9_:]*|[0-9.]+|[=!]~|[!=<>]=|\S`)
	promNames = regexp.MustCompile(`^[a-zA-Z_:]`)
	// promLists are the words of PromQL that labels follow, in parentheses.
	promLists = []string{"by", "without", "on", "ignoring", "group_left", "group_right"}
	promWords = []string{"and", "or", "unless", "bool", "offset"}
	// targetLabels are the labels that Prometheus itself gives each series.
	targetLabels = []string{"job", "instance"}
	waitReasons  = regexp.MustCompile(`Wait\w+ +WaitReason = "(\w+)"`)
)

// problemsOf returns what an expression names that isn't exported.
func problemsOf(expression string, known exported) (problems []string) {
	tokens := promTokens.FindAllString(expression, -1)
	labels := slices.Clone(targetLabels)
	var grouped []string
	for i := 0; i < len(tokens); i++ {
		next := ""
		if i+1 < len(tokens) {
			next = tokens[i+1]
		}
		switch {
		case !promNames.MatchString(tokens[i]), slices.Contains(promWords, tokens[i]):
		case slices.Contains(promLists, tokens[i]):
			for i += 2; tokens[i] != ")"; i++ {
				if tokens[i] != "," {
					grouped = append(grouped, tokens[i])
				}
			}
		case next == "(", slices.Contains(promLists, next): // a function
		default:
			metric := tokens[i]
			if known[metric] == nil {
				problems = append(problems, "there is no metric "+metric)
				continue
			}
			for label := range known[metric] {
				labels = append(labels, label)
			}
			if next == "{" {
				for i += 2; tokens[i] != "}"; i++ {
					if promNames.MatchString(tokens[i]) {
						problems = append(problems,
							matcherProblems(metric, tokens[i:i+3], known)...)
						i += 2
					}
				}
			}
		}
	}
	for _, label := range grouped {
		if !slices.Contains(labels, label) {
			problems = append(problems, "there is no label "+label)
		}
	}
	return problems
}

// matcherProblems returns what a matcher, such as state="gone", names that isn't exported. A series
// comes and goes with some values; of such labels the program's own words are known.
func matcherProblems(metric string, matcher []string, known exported) (problems []string) {
	label, value := matcher[0], strings.Trim(matcher[2], `"`)
	if slices.Contains(targetLabels, label) {
		return nil
	}
	if _, ok := known[metric][label]; !ok {
		return []string{fmt.Sprintf("%s has no label %s", metric, label)}
	}
	values := known.values(metric, label)
	if label == "waits_for" {
		source, _ := os.ReadFile("../../lease.go") // without it, no value is known
		for _, m := range waitReasons.FindAllStringSubmatch(string(source), -1) {
			values = append(values, m[1])
		}
	}
	for one := range strings.SplitSeq(value, "|") {
		is := regexp.MustCompile("^(?:" + one + ")$").MatchString
		if !strings.HasPrefix(one, "$") && !slices.ContainsFunc(values, is) {
			problems = append(problems,
				fmt.Sprintf("%s has no value %s of its label %s", metric, one, label))
		}
	}
	return problems
}

// The check of expressions finds what is wrong.
func TestProblemsOfExpressions(t *testing.T) {
	t.Parallel()
	known := exported{"up_total": {"state": {"alive"}}, "wait_bucket": {"le": nil},
		"due": {"waits_for": nil}}
	for expression, want := range map[string]string{
		`max by (state, job) (rate(up_total{state="alive"}[5m])) > 5 and on () wait_bucket`: "",
		`histogram_quantile(0.9, sum by (le) (rate(wait_bucket[5m])))`:                      "",
		`due{waits_for=~"capacity|quota_.*", job=~"$job"}`:                                  "",
		`sum(down_total)`:           "there is no metric down_total",
		`up_total{status="alive"}`:  "up_total has no label status",
		`up_total{state="dead"}`:    "up_total has no value dead of its label state",
		`sum by (tenant)(up_total)`: "there is no label tenant",
		`due{waits_for="weather"}`:  "due has no value weather of its label waits_for",
	} {
		assert.Equal(t, want, strings.Join(problemsOf(expression, known), ", "), expression)
	}
}

// tooOld matches what promtool says of a command or a flag that it doesn't know.
var tooOld = regexp.MustCompile(`unknown (long|short) flag|expected command but got`)

// checkByPromtool checks the metrics, the rules with their tests, and the expressions of the
// dashboard with Prometheus' own tool. .ci/run installs it.
func checkByPromtool(t *testing.T, metrics string, dashboard []string) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is missing")
	}
	run := func(stdin string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir, cmd.Stdin = observability, strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		if err != nil && tooOld.Match(out) {
			t.Skipf("promtool is too old: %s", out)
		}
		assert.NoError(t, err, "promtool %s: %s", strings.Join(args, " "), out)
	}
	run(metrics, "check", "metrics")
	run("", "check", "rules", "rules.yaml")
	run("", "test", "rules", "rules_test.yaml")
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []rule
	for i, e := range dashboard {
		rules = append(rules, rule{fmt.Sprintf("panel:%d", i),
			strings.ReplaceAll(e, "$__rate_interval", "5m")})
	}
	file := filepath.Join(t.TempDir(), "panels.yaml")
	text, err := yaml.Marshal(map[string]any{
		"groups": []any{map[string]any{"name": "panels", "rules": rules}}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, text, 0o600))
	run("", "check", "rules", "--lint=none", file)
}

// There is a playbook for each alert rule, in docs/alerts.md or docs/operations.md, and tests in
// which it fires and doesn't.
func TestAlertRulesHavePlaybooksAndTests(t *testing.T) {
	t.Parallel()
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Labels      map[string]string
				Annotations map[string]string
			}
		}
	}
	readYAML(t, filepath.Join(observability, "rules.yaml"), &rules)
	var tests struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string `json:"alertname"`
				ExpAlerts []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		}
	}
	readYAML(t, filepath.Join(observability, "rules_test.yaml"), &tests)
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, one := range tests.Tests {
		for _, at := range one.AlertRuleTest {
			fires[at.Alertname] = fires[at.Alertname] || len(at.ExpAlerts) > 0
			silent[at.Alertname] = silent[at.Alertname] || len(at.ExpAlerts) == 0
		}
	}
	source, err := os.ReadFile("../../alert.go")
	require.NoError(t, err)
	kinds := regexp.MustCompile(`AlertKind = "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	require.NotEmpty(t, kinds)
	require.NotEmpty(t, rules.Groups)
	for _, r := range rules.Groups[0].Rules {
		assert.True(t, fires[r.Alert], "%s: no test in which it fires", r.Alert)
		assert.True(t, silent[r.Alert], "%s: no test in which it doesn't fire", r.Alert)
		assert.Contains(t, []string{"critical", "warning"}, r.Labels["severity"], r.Alert)
		assert.NotEmpty(t, r.Annotations["summary"], r.Alert)
		book := r.Annotations["runbook_url"]
		for _, m := range kinds {
			assertPlaybook(t, strings.ReplaceAll(book, "{{ $labels.alert }}", m[1]))
		}
	}
}

func assertPlaybook(t *testing.T, url string) {
	t.Helper()
	m := regexp.MustCompile(`^https://github\.com/asyncflow/asyncflow/blob/main/docs/` +
		`((?:alerts|operations)\.md)#([\w-]+)$`).FindStringSubmatch(url)
	if !assert.NotNil(t, m, "%s is no playbook", url) {
		return
	}
	page, err := os.ReadFile("../../docs/" + m[1])
	require.NoError(t, err)
	for part := range strings.SplitSeq(string(page), "\n#") {
		heading, body, _ := strings.Cut(strings.TrimLeft(part, "# "), "\n")
		if strings.ReplaceAll(strings.ToLower(heading), " ", "-") == m[2] {
			assert.Contains(t, body, "**Means**", url)
			assert.Contains(t, body, "**Do**", url)
			return
		}
	}
	t.Errorf("there is no playbook %s", url)
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into))
}
