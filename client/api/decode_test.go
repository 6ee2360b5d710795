package api

import (
	"encoding/json"
	"fmt"
	"strings"
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
		`null`:            "must be an object, not null",
		`{"type":"a"} {}`: "something after",
		`{"type":"a"`:     "unexpected end of JSON input",
	} {
		t.Run(doc, func(t *testing.T) {
			var task NewTask
			err := Decode([]byte(doc), &task)
			if wrong == "" {
				require.NoError(t, err, doc)
				assert.Equal(t, "a", task.Type, doc)
			} else {
				require.ErrorContains(t, err, wrong, doc)
			}
		})
	}
	for fields, wrong := range map[string]string{
		`"retry":{"max_attempts":1,"max_attempts":2}`: `field "retry.max_attempts" is given twice`,
		`"retry":{"MAX_attempts":1}`:                  `unknown field "retry.MAX_attempts"`,
		`"retry":{ "interval" : true } `:              `field "retry.interval" must be`,
		`"delay":null`:                                `field "delay" must not be null`,
		`"run_at":null`:                               `field "run_at" must not be null`,
		`"delay":"soon"`:                              `field "delay" must be a duration`,
		`"key":7`:                                     `field "key" cannot unmarshal number`,
		"\"key\":\"\xff\"":                            `field "key" must be UTF-8 without NUL`,
		`"key":"x\u0000"`:                             `field "key" must be UTF-8 without NUL`,
		`"key":"x\ud800"`:                             `field "key" must be UTF-8 without NUL`,
		`"key":"\ud83d\ude00 \ufffd \uFFFD �"`:        "",
	} {
		t.Run(fields, func(t *testing.T) {
			doc := `{"type":"a","context":1,` + fields + `}`
			err := Decode([]byte(doc), &NewTask{})
			if wrong == "" {
				require.NoError(t, err, doc)
			} else {
				require.ErrorContains(t, err, wrong, doc)
			}
		})
	}
	require.NoError(t, Decode([]byte("{\"type\":\"a\",\"context\":\"\xff\"}"), &NewTask{}),
		"only the reader of a context checks it")
	for doc, wrong := range map[string]string{
		`{"stages":[{"name":"a"},{"name":"b","name":"c"}]}`:    `field "stages[1].name" is given twice`,
		`{"stages":[{"name":"a"} , {"Name":"b"}]}`:             `unknown field "stages[1].Name"`,
		`{"stages":[],"stage_mapping":{"a":"b","a":"c"}}`:      `field "stage_mapping.a" is given twice`,
		`{"stages":[],"stage_mapping":{"\u0000":"b"}}`:         `is not UTF-8 without NUL`,
		`{"stages":[],"stage_mapping":{"a":null}}`:             `"stage_mapping.a" must not be null`,
		`{"stages":[ ],"stage_mapping":{ }, "retry":{ }}`:      "",
		`{"stages":[{}, {} ],"stage_mapping":{"\\u0000":"b"}}`: "",
	} {
		t.Run(doc, func(t *testing.T) {
			err := Decode([]byte(doc), &TaskTypeSpec{})
			if wrong == "" {
				require.NoError(t, err, doc)
			} else {
				require.ErrorContains(t, err, wrong, doc)
			}
		})
	}
	require.NoError(t, Decode([]byte("{\"error\":\"\xff\\u0000\"}"), &Failure{}),
		"a worker's report counts")
	var batch NewTaskBatch
	require.ErrorContains(t, Decode([]byte(`{"TASKS":[]}`), &batch), "TASKS")
	require.NoError(t,
		Decode([]byte(`{"tasks":[{"type":"a","context":1},{"Type":"b","context":1}]}`), &batch))
	assert.NoError(t, batch.Tasks[0].Err)
	assert.ErrorContains(t, batch.Tasks[1].Err, "Type")
	out, err := json.Marshal(batch.Tasks[0])
	require.NoError(t, err)
	assert.JSONEq(t, `{"type":"a","context":1}`, string(out))
}

// Decode ends for every input, and accepts only documents that encoding/json reads, too.
func FuzzDecode(f *testing.F) {
	for _, doc := range []string{
		`{"stages":[{"name":"a","retry":{"interval":[1,2]}}],"stage_mapping":{"x":"y"}}`,
		`{"stages":[[],{},"",{"name":"\\"}]}`,
		` { } `, `[]`, `null`, `"\u0000"`,
		`{"stages":null,"retry":{"max_attempts":1,"max_attempts":2}}`,
		`{"type":"a","key":"b","flow_key":"c","context":{"x":["\"]}"]}}`, "\"\x1f\"",
		"\"\xff\xed\xa0\x80\"", `"\ud800\u12"`, `"\ud800x"`, `[-0.0e+00,1.,01]`,
		"\ufeff1", "1 \v", "[1,]", `{"a":1,"a":2,}`, strings.Repeat("[", 10001), strings.Repeat("[",
			10000) + strings.Repeat("]", 10000),
		"",
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		require.Equal(t, json.Valid(doc), valid(doc))
		var spec TaskTypeSpec
		if Decode(doc, &spec) == nil {
			require.NoError(t, json.Unmarshal(doc, &TaskTypeSpec{}))
		}
		var whole, task NewTask
		if json.Valid(doc) {
			require.Equal(t, errorText(readAll(doc, &whole)),
				errorText(decodeGone(string(doc), &task)))
			require.Equal(t, whole, task)
		}
	})
}

// Cutting values out of a document before package json reads it makes no difference.
func TestDecodeCutsOut(t *testing.T) {
	t.Parallel()
	long := `{"type": "a", "a]": ["` + strings.Repeat(`x\"\\`, 40) +
		`", {"context": null, "context": [1]}]}`
	for _, task := range []string{
		`{"type":"a","context":` + long + `}`,
		` { "context" : ` + long + ` , "type" : "a" } `,
		`{"type":"a","context":` + long + `,"context":1}`,
		`{"type":"a","context":1,"context":` + long + `}`,
		`{"type":"a","\u0063ontext":` + long + `}`,
		`{"type":"a","Context":` + long + `}`,
		`{"type":1,"context":` + long + `}`,
		`{"type":"a","context":` + long + `,"priority":"high"}`,
		`{"type":"a","context":` + long + `,"priority":3,"key":null}`,
		`{"type":"a","key":"k","flow_key":"f","context":null}`, `{"context":1,"type":"ä"}`,
		`{"type":"","context":1}`, `{"type":"a","type":""}`,
		`{"type":"","type":"a"}`, `{"type":"a","type":"b"}`, `{"type":"\u0061","key":"\u0000"}`,
		"{\"type\":\"\xff\"}", `{"type":null}`, `{"key":"k","key":"k"}`,
		`{"type":"a","context":1,"key":""}`,
		`{"type":"a","context":1,"flow_key": "" ,"delay":"1s"}`,
		`{"type":"a","context":1,"context":2}`, `{"key_window":"1h","type":"a"}`,
		`{"t\u0079pe":"a"}`,
		`{"type":"a"}`, `[` + long + `]`, `null`, `{}`, long,
	} {
		t.Run(fmt.Sprintf("%.60s", task), func(t *testing.T) {
			var whole, cut NewTask
			require.Equal(t, errorText(readAll([]byte(task), &whole)),
				errorText(decodeGone(task, &cut)),
				task)
			require.Equal(t, whole, cut, task)
			for _, doc := range []string{
				`{"tasks":[` + task + `]}`, `{ "tasks" : [ ` + task + ` , ` + task + ` ] } `,
				`{"tasks":[1,` + task + `,[],null]}`, `{"tasks":` + task + `}`,
				`{"tasks":[` + task + `],"tasks":[]}`, `{"tasks":[` + task + `],"task":[]}`, `{"tasks":[]}`,
				`{"tasks":null}`, `{}`, task,
			} {
				var whole, cut NewTaskBatch
				err := readAll([]byte(doc), &whole)
				require.Equal(t, errorText(err), errorText(decodeGone(doc, &cut)), doc)
				if err != nil {
					continue
				}
				require.Len(t, cut.Tasks, len(whole.Tasks), doc)
				for i := range whole.Tasks {
					require.Equal(t, errorText(whole.Tasks[i].Err), errorText(cut.Tasks[i].Err),
						doc)
					require.Equal(t, whole.Tasks[i].NewTask, cut.Tasks[i].NewTask, doc)
					require.Equal(t, whole.Tasks[i].Raw, cut.Tasks[i].Raw, doc)
				}
			}
		})
	}
}

// decodeGone is Decode of a document that is overwritten before anybody looks at what was
// read.
func decodeGone(doc string, into any) error {
	own := []byte(doc)
	err := Decode(own, into)
	clear(own)
	return err
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// BenchmarkDecode reads a batch of 100 tasks.
func BenchmarkDecode(b *testing.B) {
	task := `{"type":"thumbnails","context":{"image":"` + strings.Repeat("x", 180) + `"}}`
	doc := []byte(`{"tasks":[` + strings.Repeat(task+",", 99) + task + `]}`)
	b.ReportAllocs()
	for b.Loop() {
		var batch NewTaskBatch
		require.NoError(b, Decode(doc, &batch))
	}
}
