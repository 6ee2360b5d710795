package web_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/browsertest"
)

// functions are the exports of a source file of the console, on an empty page. The file is one of
// those that web/build bundles for tests.
type functions struct {
	t    *testing.T
	page *browsertest.Page
}

func exportsOf(t *testing.T, file string) functions {
	t.Helper()
	t.Parallel()
	script, err := os.ReadFile("testdata/functions.js")
	require.NoError(t, err)
	f := functions{t, browsertest.Open(t)}
	script = append(script, "\nwindow.exported = exported["+browsertest.Quote(file)+"]"...)
	require.True(t, browsertest.Ask[bool](t, f.page.Context,
		`(0, eval)(`+browsertest.Quote(string(script))+`), exported !== undefined`))
	return f
}

// text calls a function, and returns its result as a text.
func (f functions) text(name string, args ...any) string {
	f.t.Helper()
	doc, err := json.Marshal(args)
	require.NoError(f.t, err)
	return browsertest.Ask[string](f.t, f.page.Context,
		`String(exported.`+name+`(...`+string(doc)+`))`)
}

// The functions that tests call are those of the sources, which need Node 20 to be bundled.
func TestFunctionsAreOfTheirSources(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("testdata/functions.js")
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(script), "\n")
	words := strings.Fields(first)
	require.Greater(t, len(words), 2, "comment mark, sources, hash")
	last := len(words) - 1
	hash := sha256.New()
	for _, file := range words[1:last] {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		hash.Write(text)
	}
	require.Equal(t, fmt.Sprintf("%x", hash.Sum(nil)), words[last],
		"the sources have changed since the script was made: run make web and commit it")
}

// Common cron expressions are said in words; others stay as they are.
func TestCronInWords(t *testing.T) {
	f := exportsOf(t, "src/schedules/when.ts")
	for cron, words := range map[string]string{
		"@hourly":                 "every hour",
		"@daily":                  "every day at 00:00",
		"@midnight":               "every day at 00:00",
		"@weekly":                 "on Sunday at 00:00",
		"@monthly":                "on day 1 of each month at 00:00",
		"@yearly":                 "on January 1 at 00:00",
		"@annually":               "on January 1 at 00:00",
		"* * * * *":               "every minute",
		"*/1 * * * *":             "every minute",
		"*/15 * * * *":            "every 15 minutes",
		"0,15,30,45 * * * *":      "every 15 minutes",
		"5/15 * * * *":            "every 15 minutes from 5 min past the hour",
		"5-59/20 * * * *":         "every 20 minutes from 5 min past the hour",
		"*/7 * * * *":             "",
		"5,10 * * * *":            "every hour at 5 and 10 min past",
		"* 9 * * *":               "every minute between 09:00 and 09:59",
		"*/30 9-17 * * MON-FRI":   "every 30 minutes between 09:00 and 17:30 from Monday to Friday",
		"*/30 9,12 * * *":         "at 09:00, 09:30, 12:00 and 12:30",
		"0 * * * *":               "every hour",
		"7 * * * ?":               "every hour, 7 min past the hour",
		"0 */6 * * *":             "every 6 hours",
		"30 */6 * * *":            "every 6 hours, 30 min past the hour",
		"0 2/6 * * *":             "every 6 hours from 02:00",
		"0 9-17 * * *":            "every hour between 09:00 and 17:00",
		"0 8-18/2 * * 6,0":        "every 2 hours between 08:00 and 18:00 on Saturday and Sunday",
		"0 9,21 * * *":            "at 09:00 and 21:00",
		"0 */5 * * *":             "every 5 hours between 00:00 and 20:00",
		"05 3 * * *":              "at 03:05",
		"0 3 * * 1":               "on Monday at 03:00",
		"0 3 * * mon,Wed,fri":     "on Monday, Wednesday and Friday at 03:00",
		"0 3 * * 1-3,6":           "on Monday to Wednesday and Saturday at 03:00",
		"0 3 * * */2":             "on Tuesday, Thursday, Saturday and Sunday at 03:00",
		"0 3 * * 0-6":             "at 03:00",
		"0 3 1,15 * *":            "on days 1 and 15 of each month at 03:00",
		"0 3 1-7 * *":             "on days 1 to 7 of each month at 03:00",
		"0 3 */2 * *":             "every 2 days from day 1 of each month at 03:00",
		"0 3 1-15/2 * *":          "",
		"0 3 */10 * *":            "on days 1, 11, 21 and 31 of each month at 03:00",
		"0 3 24 DEC *":            "on December 24 at 03:00",
		"0 3 1 */3 *":             "on day 1 of January, April, July and October at 03:00",
		"0 3 1,2 1 *":             "on days 1 and 2 of January at 03:00",
		"0 3 * 6-8 *":             "every day in June to August at 03:00",
		"*/5 * * JUN,NOV *":       "every 5 minutes in June and November",
		"0 3 * 12 1-5":            "from Monday to Friday in December at 03:00",
		"0 3 1-31 * MON":          "at 03:00", // either of them
		"0 3 13 * FRI":            "",
		"0 3 */2 * FRI":           "",
		"1,2,3,5,8,13,21 * * * *": "",
		"0 1,2,3,5,8,13,21 * * *": "",
		"0 25 * * *":              "",
		"0 3 0 * *":               "",
		"0 3 * * 7":               "",
		"0 3 * *":                 "",
		"0 3 * * * *":             "",
		"a b c d e":               "",
		"0 3 5-1 * *":             "",
		"*/0 * * * *":             "",
		"@reboot":                 "",
	} {
		switch {
		case words == "":
			words = cron
		case words[:2] == "at":
			words = "every day " + words
		}
		assert.Equal(t, words, f.text("cronWords", cron), cron)
	}
	for _, c := range []struct{ schedule, words string }{
		{`{"every":"1h30m0s"}`, "every 1 h 30 min"},
		{`{"cron":"@hourly","time_zone":"Europe/Berlin"}`, "every hour"},
		{`{"cron":"0 3 * * *","time_zone":"Europe/Berlin"}`,
			"every day at 03:00, Europe/Berlin time"},
		{`{"cron":"0 3 13 * FRI"}`, "by 0 3 13 * FRI, UTC time"},
		{`{"cron":"*/5 * * 6 *"}`, "every 5 minutes in June, UTC time"},
	} {
		assert.Equal(t, c.words, f.text("when", json.RawMessage(c.schedule)), c.schedule)
	}
}

// What a quota allows is said in its unit.
func TestAmounts(t *testing.T) {
	f := exportsOf(t, "src/format.ts")
	for _, c := range []struct {
		quota string
		n     float64
		text  string
	}{
		{"configuration_bytes", 0, "0 B"},
		{"configuration_bytes", 1023, "1,023 B"},
		{"configuration_bytes", 4755, "4.64 KiB"},
		{"configuration_bytes", 16 << 20, "16 MiB"},
		{"context_bytes", 1 << 30, "1 GiB"},
		{"submits_per_second", 0.5, "0.5/s"},
		{"pending_tasks", 12345, "12,345"},
	} {
		assert.Equal(t, c.text, f.text("amount", c.quota, c.n), "%s %v", c.quota, c.n)
	}
}

// There is a colour for each outcome of an attempt.
func TestColoursOfOutcomes(t *testing.T) {
	t.Parallel()
	style, err := os.ReadFile("src/console.css")
	require.NoError(t, err)
	api, err := os.ReadFile("../openapi.yaml")
	require.NoError(t, err)
	enum := regexp.MustCompile(`enum: \[(done, .*fanned_out.*)\]`).FindSubmatch(api)
	require.NotNil(t, enum)
	for _, outcome := range strings.Split(string(enum[1]), ", ") {
		assert.Regexp(t, `\.`+outcome+`\b[^{]*\{\s*color:`, string(style))
	}
}

// JSON is shown as it is written, with all digits and in its order.
func TestJSONAsItIsWritten(t *testing.T) {
	f := exportsOf(t, "src/json.ts")
	assert.Equal(t, "{\n  \"b\": 12345678901234567890,\n  \"a\": [\n    1.0,\n    {\n"+
		"      \"x\": \"{,}\"\n    }\n  ],\n  \"c\": {},\n  \"1\": []\n}",
		f.text("indented", `{"b":12345678901234567890,"a":[1.0,{"x":"{,}"}],"c":{},"1":[]}`))
	for text, want := range map[string]string{`[]`: "[]", ` "a" `: `"a"`, "1e400": "1e400",
		"{": "{"} {
		assert.Equal(t, want, f.text("indented", text))
	}
	for text, want := range map[string]string{`"a\nb"`: "a\nb", "[1]": "[1]", "null": "null",
		"12345678901234567890": "12345678901234567890"} {
		assert.Equal(t, want, f.text("plain", text))
	}
}

// A text that isn't JSON is refused with the place of the fault.
func TestPlaceOfAFault(t *testing.T) {
	f := exportsOf(t, "src/json_fault.ts")
	for text, want := range map[string]string{
		`{"a":[1,-2.5e3,true,null,"\u00e9\n"],"b":{}}`: "",
		" \t[] ":            "",
		"":                  "it is empty",
		" \n":               "it is empty",
		`{"a":1`:            "it ends too early",
		`{"a":`:             "it ends too early",
		"[1,\n":             "it ends too early",
		`"abc`:              "it ends too early",
		`"ab\`:              `line 1, column 4, at \`,
		"{\n  \"a\": 1,\n}": "line 3, column 1, at }",
		"{\n  \"a\" 1\n}":   "line 2, column 7, at 1",
		"{'a': 1}":          "line 1, column 2, at '",
		"{a: 1}":            "line 1, column 2, at a",
		"[1,]":              "line 1, column 4, at ]",
		"[1 2]":             "line 1, column 4, at 2",
		"[1}":               "line 1, column 3, at }",
		"[01]":              "line 1, column 3, at 1",
		"[1.]":              "line 1, column 3, at .",
		"[nul]":             "line 1, column 2, at n",
		"1,2":               "line 1, column 2, at ,",
		"{} {}":             "line 1, column 4, at {",
		"[\"a\nb\"]":        "line 1, column 4, at the end of the line",
		`["\x"]`:            `line 1, column 3, at \`,
		"[\u00a01]":         "line 1, column 2, at \u00a0",
		"[\U0001f600]":      "line 1, column 2, at \U0001f600",
		"]":                 "line 1, column 1, at ]",
	} {
		assert.Equal(t, want, f.text("faultOf", text), "%q", text)
	}
	deep := strings.Repeat(`[{"a":`, 100_000)
	assert.Equal(t, "it ends too early", f.text("faultOf", deep))
	long := `["` + strings.Repeat(`\n`, 1<<20) + `" "`
	assert.Equal(t, "line 1, column 2097157, at \"", f.text("faultOf", long))
}

// The depth of a text is that of its brackets; those in strings don't count.
func TestDepthOfJSON(t *testing.T) {
	f := exportsOf(t, "src/json.ts")
	for text, depth := range map[string]int{`1`: 0, `"[[["`: 0, `[]`: 1, `{"a":[1,{"b":2}],"c":[]}`: 3,
		`"\"[[["`: 0, strings.Repeat("[", 40_000) + strings.Repeat("]", 40_000): 40_000} {
		assert.Equal(t, fmt.Sprint(depth), f.text("depthOf", text), "%.40s", text)
	}
}

// All that can be applied is in the document of a type, as it is stored.
func TestDocumentOfAType(t *testing.T) {
	f := exportsOf(t, "src/types/document.ts")
	assert.Equal(t, "{\n  \"stages\": [],\n  \"rate\": 12345678901234567890\n}",
		f.text("documentOf",
			`{"name":"a","version":3,"stages":[],"created_at":"x","rate":12345678901234567890}`))
}

// In the link of a trace is its id, and leads to no other kind of URL.
func TestTraceURL(t *testing.T) {
	f := exportsOf(t, "src/task/trace_url.ts")
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	const trace = "00-" + id + "-00f067aa0ba902b7-01"
	for _, c := range [][3]string{
		{"https://tempo.example/trace/{trace_id}", trace, "https://tempo.example/trace/" + id},
		{"http://x/{trace_id}?q={trace_id}", trace, "http://x/" + id + "?q=" + id},
		{"javascript:alert('{trace_id}')", trace, ""},
		{"https://x/{trace_id}", `00-"><img src=x>-1-01`, ""},
		{"https://x/{trace_id}", "", ""},
		{"", trace, ""},
	} {
		assert.Equal(t, c[2], f.text("traceURL", c[0], c[1]), "%s %s", c[0], c[1])
	}
}

// There is a number in a chart for each step: 0 where nothing happened, and none where no node
// recorded, or where the minute isn't over.
func TestNumbersOfACharts(t *testing.T) {
	f := exportsOf(t, "src/chart/series.ts")
	browsertest.Ask[bool](t, f.page.Context, `(() => {
		const all = {count: p => p.failed, sample: p => p.running};
		exported.numbers = h => JSON.stringify(exported.columns(h, ["count", "sample", undefined]
			.map(zero => ({zero, of: p => zero ? all[zero](p) : p.wait?.p50_ms || undefined})), 480)
			.slice(1));
		exported.known = h => JSON.stringify(exported.gaps(h).map(([a, b]) => [a / 60, b / 60]));
		exported.zoom = (a, b, now) => JSON.stringify(exported.zoomed([a, b], now));
		return true})()`)
	minute := func(n int) string { return time.Unix(int64(n)*60, 0).UTC().Format(time.RFC3339) }
	point := func(n int) string {
		return `{"at":"` + minute(n) + `","failed":3,"running":2,"wait":{"p50_ms":1.5}}`
	}
	span := func(from, until int) string {
		return `{"from":"` + minute(from) + `","until":"` + minute(until) + `"}`
	}
	history := func(step, until, spans, points string) json.RawMessage {
		return json.RawMessage(`{"from":"` + minute(0) + `","until":"` + until + `","step":"` +
			step + `","recorded":[` + spans + `],"points":[` + points + `]}`)
	}
	short := history("1m", minute(8), span(0, 2)+","+span(5, 8), point(1)+","+point(3)+","+point(7))
	assert.Equal(t, `[[0,3,null,3,null,0,0,null],[0,2,null,2,null,0,0,2],`+
		`[null,1.5,null,1.5,null,null,null,1.5]]`, f.text("numbers", short))
	assert.Equal(t, `[[2,3],[4,5]]`, f.text("known", short))
	long := history("1h0m0s", minute(240), span(60, 240), point(180))
	assert.Equal(t, `[[null,0,0,3],[null,0,0,2],[null,null,null,1.5]]`, f.text("numbers", long))
	assert.Equal(t, `[[0,60]]`, f.text("known", long))
	assert.Equal(t, `[[0,8]]`, f.text("known", history("1m", minute(8), "", "")))
	assert.Equal(t, `[]`, f.text("known", history("1m", minute(8), span(0, 6), "")), "not yet")

	const day = 86_400
	assert.Equal(t, `[99000,99600]`, f.text("zoom", 99_290, 99_310, 100_000), "10 minutes at least")
	assert.Equal(t, `[99400,100000]`, f.text("zoom", 99_990, 100_000, 100_000), "not the future")
	assert.Equal(t, `[89200,110800]`, f.text("zoom", 99_990, 100_010, 100_000+3*day),
		"hours are known, not minutes")
}
