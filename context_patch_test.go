package asyncflow_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
)

// The examples of RFC 7396, as far as they are of objects, and what stays as it is written.
func TestPatchContext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ context, patch, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{"a":[1,2]}`, `{"a":{"b":1,"c":null}}`, `{"a":{"b":1}}`},
		{`{ "n" : 1e400, "x" : [ 1.0 ] , "s":"\u00e9" }`, `{"s":"<&>"}`,
			`{"n":1e400,"x":[ 1.0 ],"s":"<&>"}`},
		{`{"\u0061":1}`, `{"a":2}`, `{"\u0061":2}`},
		{`{"a":1,"b":2,"a":{"c":3}}`, `{"a":{"d":4}}`, `{"a":{"c":3,"d":4},"b":2}`},
		{`{"a":1}`, ` { "a" : 2 , "a" : null } `, `{}`},
		{`{"a":1}`, `{}`, `{"a":1}`},
		{`{"\ud800":1,"\ud801":2,"\ufffd":3}`, `{"a":1}`,
			`{"\ud800":1,"\ud801":2,"\ufffd":3,"a":1}`},
		{`{"\ud800":1,"\ufffd":2}`, `{"\ufffd":null}`, `{"\ud800":1}`},
		{`{"\"\\ud800\"":1,"\ud800":2}`, `{"\"\\ud800\"":3}`, `{"\"\\ud800\"":3,"\ud800":2}`},
		{`{"\ud83d\ude00":1}`, `{"😀":2}`, `{"\ud83d\ude00":2}`},
	} {
		t.Run(c.context+" with "+c.patch, func(t *testing.T) {
			got, err := asyncflow.PatchContext(json.RawMessage(c.context), json.RawMessage(c.patch))
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
		})
	}
	for _, context := range []string{`1`, `"a"`, `null`, `[{"a":1}]`, ` [] `} {
		_, err := asyncflow.PatchContext(json.RawMessage(context), json.RawMessage(`{"a":1}`))
		require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), context)
	}
}

func TestCheckContextPatch(t *testing.T) {
	t.Parallel()
	require.NoError(t, asyncflow.CheckContextPatch(json.RawMessage(` {"a":null}`)))
	for patch, says := range map[string]string{
		`7`:                "context_patch must be an object",
		`null`:             "context_patch must be an object",
		`[]`:               "context_patch must be an object",
		`{"\ud800":1}`:     "context_patch has half of a surrogate pair",
		"{\"a\":\"\xff\"}": "context_patch is not valid UTF-8",
		`{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`: "context_patch is nested",
		`{"a":"` + strings.Repeat("x", asyncflow.MaxContextPatch) + `"}`:    "the limit is 16384",
	} {
		require.ErrorContains(t, asyncflow.CheckContextPatch(json.RawMessage(patch)), says)
	}
}

// What a patch makes is what the algorithm of RFC 7396 makes of the decoded values. It is the same
// when the patch is applied once more.
func TestPatchedContextsAreMerged(t *testing.T) {
	t.Parallel()
	names := rapid.SampledFrom([]string{"a", "b", `c"d`, "é", ""})
	var value func(depth int) *rapid.Generator[any]
	object := func(depth int) *rapid.Generator[map[string]any] {
		return rapid.MapOfN(names, value(depth), 0, 4)
	}
	value = func(depth int) *rapid.Generator[any] {
		leaf := rapid.OneOf(rapid.Just[any](nil), rapid.Just[any](true), rapid.Just[any](1.5),
			rapid.Map(names, func(s string) any { return s }), rapid.Just[any]([]any{nil, "x"}))
		if depth == 0 {
			return leaf
		}
		return rapid.OneOf(leaf,
			rapid.Map(object(depth-1), func(m map[string]any) any { return m }))
	}
	rapid.Check(t, func(t *rapid.T) {
		before := object(3).Draw(t, "context")
		change := object(3).Draw(t, "patch")
		context, err := json.Marshal(before)
		require.NoError(t, err)
		patch, err := json.Marshal(change)
		require.NoError(t, err)
		got, err := asyncflow.PatchContext(context, patch)
		require.NoError(t, err)
		want, err := json.Marshal(rfc7396(before, change))
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(got))
		again, err := asyncflow.PatchContext(got, patch)
		require.NoError(t, err)
		require.Equal(t, string(got), string(again))
	})
}

// rfc7396 is the algorithm of section 2 of the RFC.
func rfc7396(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	out := map[string]any{}
	if before, ok := target.(map[string]any); ok {
		for name, value := range before {
			out[name] = value
		}
	}
	for name, value := range changes {
		if value == nil {
			delete(out, name)
		} else {
			out[name] = rfc7396(out[name], value)
		}
	}
	return out
}
