package httpapi_test

import (
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/internal/linkpage"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// reviewSpec is a type in which people decide after the first stage.
const reviewSpec = `{"stages":[{"name":"ask"},{"name":"review","mode":"wait",` +
	`"wait":{"signal":"reviewed","timeout":"72h","links":{"decisions":["approve","reject"]}}},` +
	`{"name":"ship","next":["ask","finish"]}]}`

// linked submits a task with a context, leases it, and returns the paths of the links in its
// delivery.
func (b *bundle) linked(doc string) (l asyncflow.Lease, token string, paths map[string]string) {
	b.t.Helper()
	if _, err := b.store.Catalog.Type("acme", "pipe"); err != nil {
		require.Equal(b.t, 201, b.call("PUT", "/v1/task-types/pipe", reviewSpec).status)
	}
	read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks",
		`{"type":"pipe","context":`+doc+`}`))
	l, token = b.lease()
	paths = map[string]string{}
	for _, decision := range []string{"approve", "reject"} {
		paths[decision] = "/l/" + b.keys.LinkToken(callbacks.Link{Tenant: "acme", Task: l.ID,
			Seq: l.Seq, Stage: "review", Decision: decision,
			Expiry: b.store.Clock.Now().Add(time.Hour)})
	}
	return l, token, paths
}

// press does what the button of a page does.
func (b *bundle) press(path, by string) answer {
	b.t.Helper()
	return b.form(path, "application/x-www-form-urlencoded", url.Values{"by": {by}}.Encode())
}

func (b *bundle) form(path, contentType, body string) answer {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), "POST", b.url+path,
		strings.NewReader(body))
	require.NoError(b.t, err)
	req.Header.Set("Content-Type", contentType)
	return b.do(req)
}

// requirePage checks the status of a page, its headers, and what is on it.
func requirePage(t *testing.T, a answer, status int, texts ...string) {
	t.Helper()
	require.Equal(t, status, a.status, "%s", a.body)
	require.Equal(t, "text/html; charset=utf-8", a.header.Get("Content-Type"))
	for name, value := range linkpage.Headers {
		require.Equal(t, []string{value}, a.header.Values(name), name)
	}
	for _, text := range texts {
		require.Contains(t, string(a.body), text)
	}
}

// A link shows what is asked, and its button decides, once. Opening it changes nothing.
func TestLinks(t *testing.T) {
	b := setup(t)
	for _, early := range []bool{true, false} {
		l, token, links := b.linked(`{"summary":"Two pizzas for <b>Anna</b> & Bo"}`)
		if !early {
			require.Equal(t, 200, b.callAs(token, "POST",
				"/v1/callbacks/"+l.ID.String()+"/complete",
				`{"output":{"summary":"Two pizzas for <b>Anna</b> &amp; Bo, done"}}`).status)
			b.await()
		}
		for range 3 {
			// a mail program added parameters
			requirePage(t, b.callAs("", "GET", links["approve"]+"?utm=a&utm=%ff", ""), 200,
				"<h1>Decide: approve</h1>", "Two pizzas for &lt;b&gt;Anna&lt;/b&gt; &amp;", `<button>approve</button>`,
				"Task "+l.ID.String())
			head := b.callAs("", "HEAD", links["reject"], "")
			requirePage(t, head, 200)
			require.Empty(t, head.body)
		}
		signals := 0
		require.NoError(t, b.db.QueryRow(t.Context(), `SELECT count(*) FROM tenant_acme.signals
			WHERE NOT taken`).Scan(&signals))
		require.Zero(t, signals)
		requirePage(t, b.press(links["approve"]+"?utm=a", "  Anna <3 "), 200, "Thank you",
			"Anna &lt;3")
		for range 2 {
			for _, link := range links {
				requirePage(t, b.press(link, "Bo"), 409, "Already decided", "<dd>approve</dd>",
					"Anna &lt;3")
				requirePage(t, b.callAs("", "GET", link, ""), 200, "Already decided", "Anna &lt;3")
			}
			if early {
				require.Equal(t, 200, b.callAs(token, "POST",
					"/v1/callbacks/"+l.ID.String()+"/complete", "").status)
				b.await()
				early = false
			}
			b.followUp()
		}
		l, _ = b.lease()
		require.Equal(t, "ship", l.Stage)
		require.Regexp(t, `^\{"decision":"approve","by":"Anna \\u003c3","at":"20[0-9TZ:-]+"\}$`,
			string(l.Context))
	}
}

// await makes the task in line wait for its signal, as a dispatcher does.
func (b *bundle) await() {
	b.t.Helper()
	l, _ := b.lease()
	require.Equal(b.t, "review", l.Stage)
	pipe, err := b.store.Catalog.Type("acme", "pipe")
	require.NoError(b.t, err)
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeAwaits, Awaits: pipe.WaitOf(l.Stage)}
	b.settleElsewhere(pipe, asyncflow.Settlement{Lease: l, Outcome: o,
		Verdict: asyncflow.Decide(pipe.TaskType, l, o, b.store.Clock.Now())})
	b.followUp()
}

// followUp makes tasks that wait take their signals.
func (b *bundle) followUp() {
	b.t.Helper()
	for more := true; more; {
		var err error
		more, err = b.committer.FollowUp(b.t.Context(), "acme")
		require.NoError(b.t, err)
	}
}

// A link that nobody made is answered alike, whatever it is, and before anything is read.
func TestUnknownLinks(t *testing.T) {
	b := setup(t)
	_, _, links := b.linked(`1`)
	b.closeDatabase()
	good := links["approve"]
	unknown := b.callAs("", "GET", "/l/x", "")
	requirePage(t, unknown, 404, "Unknown link")
	other, err := callbacks.NewKeys([]byte(strings.Repeat("o", 32)))
	require.NoError(t, err)
	for _, path := range []string{good + "0", good[:len(good)-1], "/l/afl1", "/l/%00", "/l/" +
		strings.Repeat("x", 4000), strings.Replace(good, "approve", "reject", 1),
		strings.Replace(good, ".acme.", ".other.", 1),
		"/l/" + other.LinkToken(callbacks.Link{Tenant: "acme", Seq: 1, Stage: "review",
			Decision: "approve", Expiry: time.Now().Add(time.Hour)})} {
		for _, a := range []answer{b.callAs("", "GET", path, ""), b.press(path, "Anna")} {
			requirePage(t, a, 404)
			require.Equal(t, unknown.body, a.body, path)
		}
	}
	requirePage(t, b.callAs("", "GET", "/l/test", ""), 404, "A test")
	requirePage(t, b.callAs("", "GET", good, ""), 503, "Not possible now")
	require.NotEmpty(t, b.callAs("", "GET", good, "").header.Get("Retry-After"))
	requirePage(t, b.press(good, "Anna"), 503, "Try again", "Open the link again")
}

// There is a page for each reason why nothing can be decided any more.
func TestLinksThatCountNoMore(t *testing.T) {
	b := setup(t)
	l, _, links := b.linked(`{"summary":"secret"}`)
	expired := "/l/" + b.keys.LinkToken(callbacks.Link{Tenant: "acme", Task: l.ID, Seq: l.Seq,
		Stage: "review", Decision: "approve", Expiry: b.store.Clock.Now().Add(-time.Second)})
	renamed := "/l/" + b.keys.LinkToken(callbacks.Link{Tenant: "acme", Task: l.ID, Seq: l.Seq,
		Stage: "review", Decision: "agree", Expiry: b.store.Clock.Now().Add(time.Hour)})
	gone := "/l/" + b.keys.LinkToken(callbacks.Link{Tenant: "nobody", Task: l.ID, Seq: l.Seq,
		Stage: "review", Decision: "approve", Expiry: b.store.Clock.Now().Add(time.Hour)})
	both := func(path string, status int, text string) {
		t.Helper()
		for _, a := range []answer{b.callAs("", "GET", path, ""), b.press(path, "Anna")} {
			requirePage(t, a, status, text)
			require.NotContains(t, string(a.body), "secret")
			require.NotContains(t, string(a.body), "<button")
		}
	}
	both(expired, 410, "This link has expired")
	both(renamed, 410, "Too late")
	both(gone, 410, "Too late")
	suspend := func(yes string) {
		require.Equal(t, 200, b.callAs(b.adminToken(), "PATCH", "/v1/tenants/acme",
			`{"suspended":`+yes+`}`).status)
	}
	suspend("true")
	both(links["approve"], 403, "Not possible now")
	suspend("false")
	require.Equal(t, 200, b.call("POST", "/v1/tasks/"+l.ID.String()+"/cancel", "").status)
	both(links["approve"], 410, "Too late")
}

// A call that fails is logged without its link: a reader of the log could decide with it.
func TestLinksAreNotLogged(t *testing.T) {
	var log lines
	b := setupWith(t, func(c *httpapi.Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	_, _, links := b.linked(`1`)
	b.closeDatabase()
	requirePage(t, b.press(links["approve"], "Anna"), 503)
	require.Len(t, log.with("path=/l/"), 1)
	require.Empty(t, log.with("afl1."))
}

// What is written for a name is bounded, and its page says so without losing it.
func TestFormsOfLinks(t *testing.T) {
	b := setup(t)
	_, _, links := b.linked(`1`)
	link := links["approve"]
	long := strings.Repeat("\U0001F355", asyncflow.MaxDecidedBy)
	for by, want := range map[string]string{
		"": "Your name is required", " ": "Your name is required",
		long + "x": "Your name has 201 characters; the limit is 200",
		"a\x00b":   "Your name must be UTF-8 without control characters",
		"\xff":     "Your name must be UTF-8 without control characters",
	} {
		requirePage(t, b.press(link, by), 400, want, `aria-invalid="true"`, "<button>approve</button>")
	}
	requirePage(t, b.press(link, `"><script>alert(1)</script>`+"\n"), 200)
	_, _, links = b.linked(`1`)
	link = links["approve"]
	const form = "application/x-www-form-urlencoded"
	requirePage(t, b.form(link, form, "by=%zz"), 400, "Your name can&#39;t be read")
	for contentType, body := range map[string]string{"application/json": `{"by":"Anna"}`,
		"text/plain": "by=Anna", "": "by=Anna"} {
		a := b.form(link, contentType, body)
		require.Equal(t, 400, a.status, contentType)
		require.Equal(t, "Content-Type", a.problem.Errors[0].Field, contentType)
	}
	require.Equal(t, "body", b.form(link, form, "").problem.Errors[0].Field)
	require.Equal(t, 413, b.form(link, form, "by="+strings.Repeat("x", 5000)).status)
	require.Equal(t, 413, b.form(link, form, "by="+strings.Repeat("x", 2<<20)).status)
	requirePage(t, b.press(link, long), 200, "Thank you")
}

// Many that open links of one tenant take nothing from another.
func TestLinksAreLimited(t *testing.T) {
	b := setupTwo(t)
	_, _, links := b.linked(`1`)
	other := "/l/" + b.keys.LinkToken(callbacks.Link{Tenant: "other",
		Task: asyncflow.NewTaskID("none", 1, 1), Seq: 1, Stage: "review", Decision: "approve",
		Expiry: b.store.Clock.Now().Add(time.Hour)})
	end := b.server.HoldLinks("acme")
	for _, a := range []answer{b.callAs("", "GET", links["approve"], ""),
		b.press(links["approve"], "Anna")} {
		requirePage(t, a, 429, "Not possible now")
		require.Equal(t, "1", a.header.Get("Retry-After"))
	}
	requirePage(t, b.callAs("", "GET", other, ""), 410)
	requirePage(t, b.callAs("", "GET", "/l/x", ""), 404)
	end()
	requirePage(t, b.callAs("", "GET", links["approve"], ""), 200)
	b.server.ChargeLinks("acme")
	requirePage(t, b.callAs("", "GET", links["approve"], ""), 429, "Not possible now")
	requirePage(t, b.callAs("", "GET", other, ""), 410)
}

// Of many that decide at the same time, one does.
func TestManyDecideAtOnce(t *testing.T) {
	b := setup(t)
	_, _, links := b.linked(`1`)
	const n = 8
	statuses := make(chan int, n)
	for i := range n {
		go func() {
			path := links[[]string{"approve", "reject"}[i%2]]
			a := b.press(path, "Anna")
			if a.status == 429 || a.status == 503 {
				a = b.press(path, "Anna")
			}
			statuses <- a.status
		}()
	}
	counts := map[int]int{}
	for range n {
		counts[<-statuses]++
	}
	require.Equal(t, map[int]int{200: 1, 409: n - 1}, counts)
	var signals int
	require.NoError(t, b.db.QueryRow(t.Context(), `SELECT count(*) FROM tenant_acme.signals`).
		Scan(&signals))
	require.Equal(t, 1, signals)
}

// The wait takes another signal while somebody presses the button: the page says that it is too
// late, and not that the decision is recorded.
func TestALinkThatLosesToASignal(t *testing.T) {
	b := setup(t)
	l, token, links := b.linked(`1`)
	require.Equal(t, 200, b.callAs(token, "POST", "/v1/callbacks/"+l.ID.String()+"/complete",
		"").status)
	b.await()
	pipe, err := b.store.Catalog.Type("acme", "pipe")
	require.NoError(t, err)
	pgtest.NotOnCitus(t, "the test's trigger would have to name the tables of the worker")
	_, err = b.db.Exec(t.Context(), pipe.SQL(l.ID.Position(), `
		CREATE FUNCTION public.take_another() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		  INSERT INTO {journal} (type, id, seq, at, stage, attempt, outcome, output,
		    next_time)
		  SELECT type, id, seq, now(), stage, 1, 'signalled', '"another"', order_time FROM {wait};
		  INSERT INTO {ready} (type, order_time, id, seq, stage, attempt)
		  SELECT type, order_time, id, seq + 1, 'ship', 1 FROM {wait};
		  DELETE FROM {wait};
		  RETURN NULL;
		END $$;
		CREATE TRIGGER take_another AFTER INSERT ON {signals}
		  FOR EACH ROW EXECUTE FUNCTION public.take_another()`))
	require.NoError(t, err)
	requirePage(t, b.callAs("", "GET", links["approve"], ""), 200, "<button>approve</button>")
	requirePage(t, b.press(links["approve"], "Anna"), 410, "Too late")
}

// The links of a type are read back as they were written; a caller can't send their signals.
func TestLinksInATypeAndKeys(t *testing.T) {
	b := setup(t)
	const spec = `{"stages":[{"name":"ask"},{"name":"review","mode":"wait",` +
		`"wait":{"signal":"reviewed","timeout":"72h","links":%s}}]}`
	for _, links := range []string{`true`, `{"summary":"/a"}`, `{"decisions":["ok"]}`} {
		b.call("PUT", "/v1/task-types/pipe", strings.Replace(spec, "%s", links, 1))
		a := b.call("GET", "/v1/task-types/pipe", "")
		assert.Contains(t, string(a.body), `"links":`+links+`}`)
	}
	for links, want := range map[string]string{
		`false`:                   "must be true, or an object",
		`{"decisions":["A"]}`:     "decisions[0]",
		`{"decisions":[]}`:        "stages[1].wait.links",
		`{"summary":"a"}`:         "links.summary is",
		`{"decision":["a"]}`:      "links",
		`{"decisions":["a","a"]}`: "which an earlier entry is",
	} {
		a := b.call("PUT", "/v1/task-types/pipe", strings.Replace(spec, "%s", links, 1))
		assert.Equal(t, 400, a.status, "%s: %s", links, a.body)
		assert.Contains(t, string(a.body), want, links)
	}
	a := b.signal("link/pipe.1.1/review/0", `{"name":"reviewed","type":"pipe","key":"k"}`)
	assert.Equal(t, 400, a.status)
	assert.Equal(t, "Idempotency-Key", a.problem.Errors[0].Field)
}
