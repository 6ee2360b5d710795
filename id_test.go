package asyncflow_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
)

const (
	lastPosition = 1<<22 - 1
	lastSequence = 1<<40 - 1
)

func drawTaskID(t *rapid.T) (id asyncflow.TaskID, position int, sequence int64) {
	position = rapid.IntRange(1, lastPosition).Draw(t, "position")
	sequence = rapid.Int64Range(1, lastSequence).Draw(t, "sequence")
	return asyncflow.NewTaskID(names.Draw(t, "type"), position, sequence), position, sequence
}

func TestTaskIDRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id, position, sequence := drawTaskID(t)
		require.Equal(t, position, id.Position())
		require.Equal(t, sequence, id.Sequence())
		require.Positive(t, id.Number)
		back, err := asyncflow.ParseTaskID(id.String())
		require.NoError(t, err)
		require.Equal(t, id, back)
	})
}

// There is one spelling of an id: whatever is read is written the same.
func TestTaskIDHasOneSpelling(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id, _, _ := drawTaskID(t)
		text := id.String()
		at := rapid.IntRange(0, len(text)).Draw(t, "at")
		inserted := rapid.SampledFrom([]string{"0", "1", "9", "+", "-", "_", ".", " ", "\n", "\x00",
			"a",
			"A", "é", "٣", "00000"}).Draw(t, "inserted")
		other := text[:at] + inserted + text[at:]
		if back, err := asyncflow.ParseTaskID(other); err == nil {
			require.Equal(t, other, back.String())
			require.NotEqual(t, id, back)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z0]{0,2}\.?[+0-9]{0,3}\.[-0-9]{0,3}`).Draw(t, "text")
		if id, err := asyncflow.ParseTaskID(text); err == nil {
			require.Equal(t, text, id.String())
		}
	})
}

func TestParseTaskID(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]asyncflow.TaskID{
		"thumbnails.1.42":                {Type: "thumbnails", Number: 1<<40 | 42},
		"a.1.1":                          {Type: "a", Number: 1<<40 | 1},
		"a.4194303.1099511627775":        {Type: "a", Number: lastPosition<<40 | lastSequence},
		"a_b-9.10.1000000":               {Type: "a_b-9", Number: 10<<40 | 1000000},
		strings.Repeat("n", 40) + ".2.3": {Type: strings.Repeat("n", 40), Number: 2<<40 | 3},
	} {
		t.Run(text, func(t *testing.T) {
			id, err := asyncflow.ParseTaskID(text)
			require.NoError(t, err, text)
			require.Equal(t, want, id)
		})
	}
	for _, text := range []string{
		"", ".", "..", "thumbnails", "thumbnails.1", "thumbnails.1.", "thumbnails..1", ".1.1",
		"thumbnails.1.2.3",
		"thumbnails.0.1", "thumbnails.1.0", "thumbnails.-1.1", "thumbnails.1.-1", "thumbnails.+1.1",
		"thumbnails.1.+1",
		"thumbnails.01.1", "thumbnails.1.01", "thumbnails.1_0.1", "thumbnails.0x1.1",
		"thumbnails.1.1e3",
		"thumbnails.1.1.0",
		" thumbnails.1.1", "thumbnails.1.1 ", "thumbnails.1.1\n", "thumbnails. 1.1",
		"thumbnails.1.1\x00",
		"Thumbnails.1.1", "9.1.1", "thumb nails.1.1", "thümb.1.1", "thumbnails.١.1",
		"thumbnails/1/1",
		"a.4194304.1", "a.1.1099511627776", "a.1.9223372036854775808", "a.18446744073709551617.1",
		strings.Repeat("n", 41) + ".1.1",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := asyncflow.ParseTaskID(text)
			require.Error(t, err)
			requireRefusal(t, err, asyncflow.CodeInvalid,
				"id must look like thumbnails.1.42 (type.position.number)")
		})
	}
}
