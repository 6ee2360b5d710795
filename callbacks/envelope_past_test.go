package callbacks

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// document returns a document of a delivery's past; "": there is none.
func document(stage, doc string) asyncflow.PastDocument {
	d := asyncflow.PastDocument{Stage: stage, Bytes: len(doc)}
	if doc != "" {
		d.JSON = json.RawMessage(doc)
	}
	return d
}

// A delivery carries what its stage asks for, byte for byte. What is too long is given by its URL,
// and by_url says so: a document may look the same.
func TestEnvelopeWithPast(t *testing.T) {
	t.Parallel()
	const url = `"https://tasks.example.com/v1/callbacks/thumbnails.1.42`
	for want, past := range map[string][]asyncflow.PastDocument{
		``: nil,
		`"input":{ "z":1.0},`: {
			document("", `{ "z":1.0}`)},
		`"outputs":{"inspect":"<é>","render":null},`: {
			document("inspect", `"<é>"`), document("render", "")},
		`"input":1,"outputs":{"inspect":null},`: {
			document("", `1`), document("inspect", "")},
		`"input":{"url":` + url + `/input","bytes":7},"outputs":{"inspect":2,"render":{"url":` + url +
			`/outputs/render","bytes":8}},"by_url":["input","outputs.render"],`: {
			{Bytes: 7}, document("inspect", `2`), {Stage: "render", Bytes: 8}},
		`"outputs":{"inspect":{"url":` + url + `/outputs/inspect","bytes":9},"render":{"url":1}},` +
			`"by_url":["outputs.inspect"],`: {
			{Stage: "inspect", Bytes: 9}, document("render", `{"url":1}`)},
	} {
		d := testDelivery(`0`)
		d.Lease.Past = past
		body := envelope(d, "https://tasks.example.com", "afc2.x.y")
		require.Contains(t, string(body), `"context":0,`+want+`"callback":{`)
		require.True(t, json.Valid(body))
	}
}

// The body is made without growing, whatever is in it.
func TestABodyWithPastHasItsSize(t *testing.T) {
	t.Parallel()
	d := testDelivery(`0`)
	d.Lease.Past = []asyncflow.PastDocument{document("", `"`+strings.Repeat("x", 1<<20)+`"`)}
	body := NewSender(Config{}, testKeys(t, nodeSecret)).body([]asyncflow.Delivery{d})
	require.Less(t, cap(body), len(body)+8<<10)
	require.Contains(t, string(body), `,"input":"xxxx`)
}
