package api

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	for doc, wrong := range map[string]string{
		`{"type":"a","context":{"type":1,"type":2}}`:         "", // a context's keys are its own
		`{"type":"a","context":"\"type\":1,\"type\""}`:       "",
		"{\"type\" : \"a\",\n \"context\"\t: [{\"key\":1}]}": "",
		`{"\u0074ype":"a","context":1}`:                      "",
		`{"type":"a","context":1,"kez":1}`:                   `unknown field "kez"`,
		`{"Type":"a","context":1}`:                           `unknown field "Type"`,
		`{"type":"a","context":1,"type":"b"}`:                `field "type" is given twice`,
		`{"type":"a","\u0074ype":"b","context":1}`:           `field "type" is given twice`,
		`{"type":"a"} {}`:                                    "something after",
		`{"type":"a"`:                                        "unexpected EOF",
	} {
		var task NewTask
		err := Decode([]byte(doc), &task)
		if wrong == "" {
			require.NoError(t, err, doc)
			assert.Equal(t, "a", task.Type, doc)
		} else {
			require.ErrorContains(t, err, wrong, doc)
		}
	}
	var batch NewTaskBatch
	require.ErrorContains(t, Decode([]byte(`{"TASKS":[]}`), &batch), "TASKS")
	require.NoError(t, Decode([]byte(`{"tasks":[{"type":"a","context":1},{"Type":"b","context":1}]}`), &batch))
	assert.NoError(t, batch.Tasks[0].Err)
	assert.ErrorContains(t, batch.Tasks[1].Err, "Type")
	out, err := json.Marshal(batch.Tasks[0])
	require.NoError(t, err)
	assert.JSONEq(t, `{"type":"a","context":1}`, string(out))
}
