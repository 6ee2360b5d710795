package callbacks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
)

func testDelivery(context string) asyncflow.Delivery {
	d := deliveryTo("https://worker.example.com/")
	d.Lease.Context = json.RawMessage(context)
	d.Deadline = time.Date(2026, 3, 1, 14, 0, 0, 500, time.FixedZone("", 2*3600))
	return d
}

func TestEnvelope(t *testing.T) {
	t.Parallel()
	d := testDelivery(`{"image":"harbour.jpg"}`)
	d.TypeVersion = 7
	require.Equal(t, `{"task_id":"thumbnails.1.42","type":"thumbnails","type_version":7,"stage":"resize",`+
		`"attempt":2,"max_attempts":5,"seq":3,`+
		`"deadline":"2026-03-01T12:00:00.0000005Z","context":{"image":"harbour.jpg"},`+
		`"callback":{"url":"https://tasks.example.com/v1/callbacks/thumbnails.1.42",`+
		`"token":"afc2.x.y"}}`,
		string(envelope(d, "https://tasks.example.com", "afc2.x.y")))
}

// What an earlier attempt left comes byte for byte.
func TestEnvelopeWithCheckpoint(t *testing.T) {
	t.Parallel()
	d := testDelivery(`1`)
	d.Lease.Checkpoint = json.RawMessage(`{"page": 12}`)
	require.Contains(t, string(envelope(d, "https://tasks.example.com", "afc2.x.y")),
		`,"context":1,"checkpoint":{"page": 12},"callback":{`)
}

// The labels that are set come as members of the delivery.
func TestEnvelopeWithLabels(t *testing.T) {
	t.Parallel()
	d := testDelivery(`1`)
	d.Lease.Options.Labels = asyncflow.Labels{User: `a "user"`, Tags: []string{"eu"},
		Metadata: map[string]string{"order": "4711"}}
	require.Contains(t, string(envelope(d, "https://tasks.example.com", "afc2.x.y")),
		`,"context":1,"user":"a \"user\"","tags":["eu"],"metadata":{"order":"4711"},"callback":{`)
}

// These fields are in a delivery, and no others.
func TestEnvelopeFields(t *testing.T) {
	t.Parallel()
	body := envelope(testDelivery(`null`), "https://tasks.example.com", "afc2.x.y")
	var top, callback map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(body, &top))
	require.NoError(t, json.Unmarshal(top["callback"], &callback))
	require.ElementsMatch(t,
		[]string{"task_id", "type", "stage", "attempt", "max_attempts", "seq", "deadline",
			"context", "callback"},
		slices.Collect(maps.Keys(top)))
	require.ElementsMatch(t, []string{"url", "token"}, slices.Collect(maps.Keys(callback)))
	var deadline time.Time
	require.NoError(t, json.Unmarshal(top["deadline"], &deadline))
	require.True(t, deadline.Equal(testDelivery("").Deadline))
}

// requirePassedOn checks that a context is in the envelope byte by byte.
func requirePassedOn(t require.TestingT, context string) {
	body := envelope(testDelivery(context), "https://tasks.example.com", "afc2.x.y")
	require.True(t, json.Valid(body), "%s", body)
	require.Contains(t, string(body), `"context":`+context+`,"callback":{`)
	var read struct{ Context json.RawMessage }
	require.NoError(t, json.Unmarshal(body, &read))
	require.Equal(t, strings.Trim(context, " \t\r\n"), string(read.Context))
}

func TestEnvelopeKeepsTheContext(t *testing.T) {
	t.Parallel()
	for _, context := range []string{
		`null`, `0`, `""`, `[]`, `{}`, `true`,
		" \r\n\t{ \"a\" :\t1 ,\n\"b\":[ ] }\n ",
		`{"z":1,"a":2,"z":3}`,
		`[1.0,1e0,1E+2,-0,-0.0,1e400,0.10,123456789012345678901234567890]`,
		`"\u00e9\u0000\ud83d\ude00\/\"\\ é 😀 <>&\u2028 \ud800"`,
		"\"\u2028\u2029\x7f\"",
		`{"callback":{"token":"mine"},"task_id":"evil"}`,
		`"` + strings.Repeat("x", 100_000) + `"`,
		strings.Repeat("[", 128) + strings.Repeat("]", 128),
	} {
		t.Run(fmt.Sprintf("%.30s", context), func(t *testing.T) {
			requirePassedOn(t, context)
		})
	}
}

func TestEnvelopeKeepsAnyContext(t *testing.T) {
	t.Parallel()
	space := rapid.StringMatching(`[ \t\r\n]{0,3}`)
	rapid.Check(t, func(t *rapid.T) {
		text, err := json.Marshal(rapid.MapOf(rapid.String(), rapid.OneOf(
			rapid.Map(rapid.Float64(), func(f float64) any { return f }),
			rapid.Map(rapid.SliceOf(rapid.String()), func(s []string) any { return s }),
		)).Draw(t, "context"))
		require.NoError(t, err)
		var spaced bytes.Buffer
		require.NoError(t, json.Indent(&spaced, text, space.Draw(t, "prefix"),
			space.Draw(t, "indent")))
		requirePassedOn(t, space.Draw(t, "before")+spaced.String()+space.Draw(t, "after"))
	})
}

// The id of a delivery differs between attempts, and stays the same when one is repeated.
func TestDeliveryID(t *testing.T) {
	t.Parallel()
	l := testDelivery("null").Lease
	require.Equal(t, "thumbnails.1.42.3", deliveryID(l))
	l.Seq++
	require.Equal(t, "thumbnails.1.42.4", deliveryID(l))
}

// The delivery of a child says which part it is.
func TestEnvelopeOfAChild(t *testing.T) {
	t.Parallel()
	d := testDelivery(`7`)
	d.Lease.Options.Child = &asyncflow.Child{Parent: asyncflow.NewTaskID("", 1, 17).Number, Seq: 2,
		Index: 3, Count: 8}
	body := func() string { return string(envelope(d, "https://tasks.example.com", "afc2.x.y")) }
	require.Contains(t, body(),
		`"context":7,"fan_out":{"parent":"thumbnails.1.17","index":3,"count":8},"callback":`)
	d.Lease.Options.Child.Shard = true
	d.Lease.Options.Child.Shared = json.RawMessage(`{"dpi":300}`)
	require.Contains(t, body(), `"fan_out":{"parent":"thumbnails.1.17","index":3,"count":8,`+
		`"shard_index":3,"shard_count":8,"shared":{"dpi":300}},"callback":`)
	require.True(t, json.Valid([]byte(body())))
}
