package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/contracttest"
)

// badCall is a call that must be refused.
type badCall struct {
	what         string
	method, path string
	body         string
	token        string            // "": that of the bundle, or of the delivery
	header       map[string]string // on top
	status       int
	field, says  string // "": anything
}

// tenantScopes are all scopes of tenants' tokens.
var tenantScopes = []auth.Scope{auth.ScopeSubmit, auth.ScopeRead, auth.ScopeOperate,
	auth.ScopeManage, auth.ScopeWork}

// subject is one operation of the contract, with a good request for it.
type subject struct {
	*openapi3.Operation
	method, path string // filled in
	params       openapi3.Parameters
	worker       bool
	operator     bool
	token        string
	example      map[string]any
	schema       *openapi3.Schema // of its body
}

// Every operation refuses what its contract doesn't allow: with the right status and a problem
// document that names the field and its limit, and without any effect.
func TestContractRefuses(t *testing.T) {
	b := setup(t)
	b.pipe()
	read[any](b, 201, b.call("POST", "/v1/endpoints",
		`{"type":"pipe","stage":"first","url":"https://w.example.com/x"}`))
	read[api.Schedule](b, 201, b.call("PUT", "/v1/schedules/nightly",
		`{"type":"pipe","context":1,"cron":"@daily"}`))
	id, _ := b.submitOne()
	lease, completion := b.lease()
	subjects := b.subjects(id, completion)
	require.Greater(t, len(subjects), 25)
	before := b.contents()
	calls := 0
	for _, s := range subjects {
		for _, c := range slices.Concat(b.badCredentials(s, lease), s.badRoutes(),
			s.badParameters(), s.badBodies()) {
			calls++
			t.Run(s.OperationID+": "+c.what, func(t *testing.T) { b.refused(t, s, c) })
		}
	}
	assert.Greater(t, calls, 500)
	assert.Equal(t, before, b.contents(), "nothing of all that changed anything")
	assert.Equal(t, 200, b.callAs(completion, "POST", "/v1/callbacks/"+id+"/complete", "").status,
		"the attempt went on")
}

// In a batch, each task is refused for the same faults as alone.
func TestContractRefusesInBatches(t *testing.T) {
	b := setup(t)
	b.pipe()
	before := b.contents()
	subjects := b.subjects("pipe.1.1", "")
	i := slices.IndexFunc(subjects, func(s subject) bool { return s.OperationID == "submitTask" })
	bad := subjects[i].badFields(subjects[i].schema, "", subjects[i].example)
	tasks := make([]string, len(bad))
	for i, f := range bad {
		tasks[i] = f.raw
	}
	results := read[api.SubmittedBatch](b, 201,
		b.call("POST", "/v1/tasks/batch", `{"tasks":[`+strings.Join(tasks, ",")+"]}")).Tasks
	require.Len(t, results, len(bad))
	for i, f := range bad {
		p := results[i].Error
		require.Equal(t, 400, p.Status, "%s: %+v", f.what, p)
		require.Equal(t, fmt.Sprintf("tasks[%d].%s", i, f.field), p.Errors[0].Field, f.what)
		require.Contains(t, p.Errors[0].Message, f.says, f.what)
	}
	assert.Equal(t, before, b.contents())
}

// refused makes a call and checks how it was refused.
func (b *bundle) refused(t *testing.T, s subject, c badCall) {
	req, err := http.NewRequestWithContext(t.Context(), orElse(c.method, s.method),
		b.url+orElse(c.path, s.path), strings.NewReader(c.body))
	require.NoError(t, err)
	if c.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Authorization", "Bearer "+orElse(c.token, s.token))
	for name, value := range c.header {
		req.Header.Set(name, value)
	}
	a := b.do(req)
	require.Equal(t, c.status, a.status, "%s", a.body)
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	require.NotEmpty(t, a.problem.Code)
	require.NotEmpty(t, a.problem.Detail)
	if c.field != "" {
		require.NotEmpty(t, a.problem.Errors, "%s", a.body)
		require.Equal(t, c.field, a.problem.Errors[0].Field, "%s", a.body)
		require.Contains(t, a.problem.Errors[0].Message, c.says)
	}
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// subjects returns the operations that need a credential. Their examples use the task type pipe.
func (b *bundle) subjects(id, completion string) (all []subject) {
	token := b.newToken("acme", tenantScopes...)
	doc := contracttest.Document()
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			s := subject{Operation: op, method: method,
				params: slices.Concat(item.Parameters, op.Parameters), token: token}
			if op.Security != nil && len(*op.Security) == 0 {
				continue
			}
			s.path = strings.NewReplacer("{type}", "pipe", "{name}", "nightly", "{slug}", "acme",
				"{id}", id).Replace(path)
			s.worker = op.Security != nil && (*op.Security)[0]["completionToken"] != nil
			if s.worker {
				s.token = completion
			}
			if op.Security != nil && (*op.Security)[0]["adminToken"] != nil {
				s.token, s.operator = b.adminToken(), true
			}
			if op.RequestBody != nil {
				media := op.RequestBody.Value.Content["application/json"]
				s.schema = media.Schema.Value
				s.example = copyOf(media.Example.(map[string]any))
				if _, ok := s.example["type"]; ok {
					s.example["type"] = "pipe"
				}
			}
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b subject) int {
		return strings.Compare(a.OperationID, b.OperationID)
	})
	return all
}

func copyOf(doc map[string]any) (out map[string]any) {
	raw, _ := json.Marshal(doc)
	_ = json.Unmarshal(raw, &out)
	return out
}

// contents returns a digest of every table of the tenant except its audit.
func (b *bundle) contents() map[string]string {
	rows, err := b.db.Query(b.t.Context(), `
		SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'tenant_acme' AND c.relkind = 'r' AND c.relname <> 'audit'`)
	require.NoError(b.t, err)
	var names []string
	for rows.Next() {
		var name string
		require.NoError(b.t, rows.Scan(&name))
		names = append(names, name)
	}
	require.NoError(b.t, rows.Err())
	all := map[string]string{}
	for _, name := range names {
		var digest string
		sql := `SELECT coalesce(string_agg(r::text, E'\n' ORDER BY r::text), '') FROM ` + name +
			` r`
		require.NoError(b.t, b.db.QueryRow(b.t.Context(), sql).Scan(&digest))
		all[name] = digest
	}
	require.Greater(b.t, len(all), 5)
	return all
}

// badCredentials are calls by callers who may not make them.
func (b *bundle) badCredentials(s subject, l asyncflow.Lease) []badCall {
	body := s.good()
	all := []badCall{
		{what: "no token", body: body, header: map[string]string{"Authorization": ""}, status: 401},
		{what: "another scheme", body: body,
			header: map[string]string{"Authorization": "Basic YTpi"}, status: 401},
		{what: "garbage for a token", body: body, token: "abc", status: 401},
	}
	if s.worker {
		token := func(c callbacks.Completion) string { return b.keys.CompletionToken(c) }
		good := callbacks.Completion{Tenant: "acme", Task: l.ID, Seq: l.Seq,
			Expiry: time.Now().Add(time.Hour)}
		another, earlier, expired := good, good, good
		another.Task.Number++
		earlier.Seq += 5
		expired.Seq, expired.Expiry = earlier.Seq, time.Now().Add(-time.Hour)
		return append(all,
			badCall{what: "a JWT", body: body, token: b.token, status: 401},
			badCall{what: "another task's token", body: body, token: token(another), status: 401},
			badCall{what: "another attempt's token", body: body, token: token(earlier),
				status: 409},
			badCall{what: "an expired token", body: body, token: token(expired), status: 401})
	}
	expired, err := b.issuer.Issue("acme", "test", tenantScopes, time.Minute,
		time.Now().Add(-time.Hour))
	require.NoError(b.t, err)
	var others []auth.Scope
	for _, scope := range tenantScopes {
		if string(scope) != s.Extensions["x-scope"] {
			others = append(others, scope)
		}
	}
	if !s.operator {
		all = append(all, badCall{what: "an operator's token", body: body, token: b.adminToken(),
			status: 403})
	}
	all = append(all,
		badCall{what: "a tenant's token that claims to be an operator's", body: body,
			token: b.tenantAdmin(), status: 403},
		badCall{what: "an expired token", body: body, token: expired, status: 401},
		badCall{what: "all scopes but the right one", body: body,
			token: b.newToken("acme", others...), status: 403},
		badCall{what: "an unknown tenant", body: body,
			token: b.newToken("nobody", tenantScopes...), status: 403})
	if s.OperationID == "listResults" { // it takes the token of a delivery, too
		return append(all, badCall{what: "a bad completion token", token: "afc2.x.y", status: 401})
	}
	return append(all,
		badCall{what: "a completion token", body: body,
			token: b.keys.CompletionToken(callbacks.Completion{Tenant: "acme", Task: l.ID,
				Seq: l.Seq, Expiry: time.Now().Add(time.Hour)}), status: 401})
}

// tenantAdmin is a tenant's token with all scopes. A foreign issuer may issue one; ours doesn't.
func (b *bundle) tenantAdmin() string {
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": "asyncflow", "aud": "asyncflow", "sub": "test", "tenant": "acme", "scope": "admin",
		"exp": time.Now().Add(time.Hour).Unix()})
	token.Header["typ"] = "at+jwt"
	signed, err := token.SignedString(authConfig().HMACSecret)
	require.NoError(b.t, err)
	return signed
}

func (s subject) good() string {
	if s.example == nil {
		return ""
	}
	return text(s.example)
}

func text(doc any) string {
	raw, _ := json.Marshal(doc)
	return string(raw)
}

// badRoutes are calls of paths that don't exist.
func (s subject) badRoutes() []badCall {
	return []badCall{
		{what: "a method it doesn't take", method: "TRACE", status: 405},
		{what: "a path that isn't there", path: s.path + "/nope/nope", status: 404},
		{what: "an unknown parameter", path: s.path + "?nope=1", body: s.good(), status: 400,
			field: "nope", says: "not a parameter"},
		{what: "a query that can't be read", path: s.path + "?a=%zz", body: s.good(), status: 400,
			field: "query"},
	}
}

// badParameters are calls with values that a parameter doesn't allow.
func (s subject) badParameters() (all []badCall) {
	for _, ref := range s.params {
		p := ref.Value
		switch p.In {
		case "path":
			all = append(all, s.badPath(p)...)
		case "query":
			for _, v := range beyond(p.Schema.Value) {
				if v.raw == "null" || v.raw == "5" && p.Schema.Value.Type.Is("string") {
					continue // in a query all is text
				}
				value := strings.Trim(v.raw, `"`)
				all = append(all, badCall{what: p.Name + ": " + v.what,
					path: s.query(p.Name, value), body: s.good(), status: 400, field: p.Name,
					says: v.says})
			}
			all = append(all,
				badCall{what: p.Name + " twice", path: s.query(p.Name, "a") + "&" + p.Name + "=a",
					body: s.good(), status: 400, field: p.Name, says: "2 times"},
				badCall{what: p.Name + " with NUL", path: s.query(p.Name, "a\x00"), body: s.good(),
					status: 400,
					field:  p.Name, says: "NUL"},
				badCall{what: p.Name + " not UTF-8", path: s.query(p.Name, "a\xff"), body: s.good(),
					status: 400, field: p.Name, says: "UTF-8"})
			if p.Required {
				all = append(all, badCall{what: p.Name + " missing", status: 400, field: p.Name,
					says: "required"})
			}
		}
	}
	return all
}

// query returns the path with one parameter, and the other required ones.
func (s subject) query(name, value string) string {
	q := name + "=" + url.QueryEscape(value)
	for _, ref := range s.params {
		if ref.Value.In == "query" && ref.Value.Required && ref.Value.Name != name {
			q += "&" + ref.Value.Name + "=pipe"
		}
	}
	return s.path + "?" + q
}

func (s subject) badPath(p *openapi3.Parameter) (all []badCall) {
	parts := strings.Split(s.path, "/") // the value is the third part, after /v1/<kind>/
	path := func(value string) string {
		changed := slices.Clone(parts)
		changed[3] = value
		return strings.Join(changed, "/")
	}
	status, field := 400, p.Name
	if s.worker {
		status, field = 401, "" // its token is for another task
	}
	for _, v := range beyond(p.Schema.Value) {
		if v.what == "too long" || v.what == "not of the pattern" {
			value := strings.Trim(v.raw, `"`)
			c := badCall{what: p.Name + " in the path: " + v.what, path: path(value),
				body: s.good(), status: status, field: field, says: v.says}
			if s.worker {
				c.status, c.field, c.says = 400, "id", "thumbnails.1.42"
			}
			all = append(all, c)
		}
	}
	if p.Schema.Value.MaxLength != nil && *p.Schema.Value.MaxLength == 80 { // a task's id
		for _, value := range []string{"pipe", "pipe.0.1", "pipe.1.01", "Pipe.1.1", "pipe.1.-1",
			"pipe.1.99999999999999", "%00", "%ff.1.1"} {
			all = append(all, badCall{what: "the id " + value, path: path(value), body: s.good(),
				status: 400, field: "id", says: "thumbnails.1.42"})
		}
	}
	return all
}

// badValue is a JSON value that a schema doesn't allow.
type badValue struct{ what, raw, says string }

// beyond returns values of another type, and values just beyond each limit.
func beyond(s *openapi3.Schema) (all []badValue) {
	add := func(what string, v any, says string) {
		all = append(all, badValue{what, text(v), says})
	}
	switch {
	case len(s.AllOf) == 1:
		return beyond(s.AllOf[0].Value)
	case len(s.OneOf) > 0:
		var value any = true
		for _, one := range s.OneOf {
			if one.Value.Type.Is("boolean") {
				value = 5
			}
		}
		add("of no type that it may be", value, "must be")
		add("an empty list", []int{}, "must be")
		for _, one := range s.OneOf {
			if one.Value.Type.Is("array") {
				add("too many entries", make([]int, *one.Value.MaxItems+1),
					strconv.Itoa(int(*one.Value.MaxItems)))
				add("a negative entry", []int{1, -1}, "0")
			}
		}
		return all
	case s.Type == nil: // any JSON
		return nil
	case s.Type.Is("integer"), s.Type.Is("number"):
		add("no number", "x", "must be a")
		if s.Type.Is("integer") {
			add("a fraction", 1.5, "must be a whole number")
		}
		if s.Min != nil {
			add("too small", *s.Min-1, strconv.FormatFloat(*s.Min, 'f', -1, 64))
		}
		if s.Max != nil {
			add("too large", *s.Max+1, strconv.FormatFloat(*s.Max, 'f', -1, 64))
		}
	case s.Type.Is("boolean"):
		add("no boolean", "maybe", "must be a boolean")
	case s.Type.Is("object"):
		add("no object", []int{}, "must be an object")
		if s.MaxProps != nil {
			many := map[string]string{}
			for i := range *s.MaxProps + 1 {
				many[fmt.Sprintf("s%d", i)] = "first"
			}
			add("too many fields", many, strconv.Itoa(int(*s.MaxProps)))
		}
	case s.Type.Is("array"):
		add("no array", map[string]int{}, "must be an array")
		if s.MinItems > 0 {
			add("too few entries", []int{}, strconv.Itoa(int(s.MinItems)))
		}
		if s.MaxItems != nil {
			add("too many entries", make([]map[string]string, *s.MaxItems+1),
				strconv.Itoa(int(*s.MaxItems)))
		}
	case s.Type.Is("string"):
		add("no string", 5, "must be")
		if s.MaxLength != nil && s.Pattern == "" {
			add("too long", strings.Repeat("x", int(*s.MaxLength)+1),
				strconv.Itoa(int(*s.MaxLength)))
		}
		if s.Pattern != "" {
			bad := "No-Good"
			if regexp.MustCompile(s.Pattern).MatchString(bad) {
				bad = "no good"
			}
			add("not of the pattern", bad, "must")
			most := 40 // of names
			if s.MaxLength != nil {
				most = int(*s.MaxLength)
			}
			if s.MaxLength != nil || strings.Contains(s.Pattern, "{0,39}") {
				add("too long for the pattern", strings.Repeat("a", most+1), strconv.Itoa(most))
			}
		}
		if len(s.Enum) > 0 {
			add("none of the words", "lost", fmt.Sprint(s.Enum[0]))
		}
		if s.Format == "date-time" {
			add("no time", "monday", "must be a time")
		}
	}
	add("null", nil, "must")
	return all
}

// badBodies are calls with every kind of bad body.
func (s subject) badBodies() (all []badCall) {
	if s.method == http.MethodGet {
		return nil
	}
	if s.schema == nil {
		return []badCall{{what: "a body that it doesn't take", body: `{"a":1}`, status: 400,
			field: "body", says: "must be empty"}}
	}
	good := s.good()
	put := func(what, body, field, says string) {
		all = append(all, badCall{what: what, body: body, status: 400, field: field, says: says})
	}
	put("malformed JSON", good[:len(good)-1], "body", "JSON")
	put("something after it", good+" {}", "body", "after the JSON document")
	put("a NUL in it", strings.Replace(good, `"`, "\"\x00", 1), "body", "JSON")
	put("a list", "[1]", "body", "must be an object")
	put("far too deep", strings.Repeat("[", 20000), "body", "")
	put("an unknown field", strings.Replace(good, "{", `{"nope":1,`, 1), "nope",
		"not a known field")
	if s.RequestBody.Value.Required {
		put("no body", "", "body", "is required")
	}
	large := strings.Replace(good, "{", "{"+strings.Repeat(" ", 1<<20), 1)
	limit := "1048576"
	if s.OperationID == "failTask" {
		limit = "65536"
	}
	all = append(all,
		badCall{what: "too large", body: large, status: 413, field: "body",
			says: "the limit of this call is " + limit},
		badCall{what: "another type of content", body: good,
			header: map[string]string{"Content-Type": "text/plain"}, status: 400,
			field: "Content-Type",
			says:  "application/json"},
		badCall{what: "a packed one", body: good,
			header: map[string]string{"Content-Encoding": "gzip"}, status: 400,
			field: "Content-Encoding"})
	for name := range s.example {
		put(name+" twice", good[:len(good)-1]+`,"`+name+`":`+text(s.example[name])+"}", name,
			"twice")
		put(name+" in capitals", strings.Replace(good, `"`+name+`":`,
			`"`+strings.ToUpper(name)+`":`, 1),
			"", "")
	}
	for _, f := range s.badFields(s.schema, "", s.example) {
		put(f.what, f.raw, f.field, f.says)
	}
	return all
}

// badField is a whole body with one bad field.
type badField struct {
	badValue
	field string
}

// badFields returns bodies with one bad field of a schema, or of an object in it. in is a good
// value of the schema.
func (s subject) badFields(schema *openapi3.Schema, at string, in map[string]any) (all []badField) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		p := schema.Properties[name].Value
		field := strings.TrimPrefix(at+"."+name, ".")
		had, was := in[name]
		try := func(what string, v any, at, says string) {
			in[name] = v
			all = append(all, badField{badValue{field + ": " + what, text(s.example), says}, at})
		}
		for _, v := range beyond(p) {
			try(v.what, json.RawMessage(v.raw), field, v.says)
		}
		if slices.Contains(schema.Required, name) {
			delete(in, name)
			says := "required"
			if field == s.bulk() {
				says = "1000"
			}
			all = append(all, badField{badValue{field + ": missing", text(s.example), says}, field})
		}
		switch {
		case p.Type == nil && len(p.OneOf) == 0 && len(p.AllOf) == 0:
			try("too deep", json.RawMessage(strings.Repeat("[", 129)+strings.Repeat("]", 129)),
				field, "128")
			try("not UTF-8", json.RawMessage("\"a\xff\""), field, "UTF-8")
		case p.Type.Is("string") && !anyText(s, name):
			try("not UTF-8", json.RawMessage("\"a\xff\""), field, "")
			try("with NUL", json.RawMessage(`"a\u0000"`), field, "")
		case p.Type.Is("object") && p.Properties != nil:
			inner := map[string]any{}
			if had, ok := had.(map[string]any); ok { // what it requires
				inner = copyOf(had)
			} else if len(p.Required) > 1 {
				inner = copyOf(p.Example.(map[string]any))
			}
			in[name] = inner
			all = append(all, s.badFields(p, field, inner)...)
		case p.Type.Is("array") && p.Items.Value.Type.Is("object") && s.bulk() == "":
			inner, other := map[string]any{}, map[string]any{}
			if p.Items.Value.Properties["name"] != nil {
				inner["name"], other["name"] = "a", "b"
			}
			if p.Items.Value.Properties["wait_for"] != nil { // a dependency
				inner["type"], inner["key"], other["task"] = "pipe", "k", "pipe.1.1"
			}
			if p.Items.Value.Properties["flow_key"] != nil { // a task to start
				inner["type"], inner["context"] = "pipe", 1
				other["type"], other["context"] = "pipe", 1
			}
			in[name] = []any{other, inner}
			all = append(all, s.badFields(p.Items.Value, field+"[1]", inner)...)
		}
		if delete(in, name); was {
			in[name] = had
		}
	}
	return all
}

// anyText reports whether a field accepts text of any bytes: some fields of workers do.
func anyText(s subject, name string) bool { return s.worker && (name == "error" || name == "note") }

// bulk returns the field with entries that get results of their own.
func (s subject) bulk() string {
	if s.OperationID == "submitTasks" {
		return "tasks"
	}
	return ""
}
