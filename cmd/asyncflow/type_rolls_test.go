package main

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// There is one roll of a new type.
func TestCLIRolls(t *testing.T) {
	t.Parallel()
	node := sharedNode(t)
	_, err := node.client().PutTaskType(t.Context(), "pipe", oneStage())
	require.NoError(t, err)
	run := clientOf(t, node)
	var list client.RollList
	require.NoError(t, json.Unmarshal([]byte(run(0, "types", "rolls", "pipe", "-o", "json")),
		&list))
	require.Len(t, list.Data, 1)
	assert.EqualValues(t, asyncflow.DefaultRollRows, list.Data[0].NextTasks)
	assert.Regexp(t, `(?m)^1 +shared +0 +\d+ +\S+Z +- +- +next one at 5000000 tasks$`,
		run(0, "types", "rolls", "pipe"))
	run(exitNotFound, "types", "rolls", "nothing")
}

func TestRollsTable(t *testing.T) {
	t.Parallel()
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	kept := client.NewDuration(48 * time.Hour)
	list := client.RollList{Data: []client.Roll{
		{Position: 9, Own: true, OpenedAt: at(60), Bytes: 81920, TasksEstimate: 70, Retention: kept,
			NextTasks: 1000, NextAt: at(120)},
		{Position: 8, Own: true, OpenedAt: at(50), SealedAt: at(60), Bytes: 1, Retention: kept},
		{Position: 7, OpenedAt: at(40), SealedAt: at(50), IdleSince: at(55), DropsAt: at(99),
			TasksEstimate: 5, Retention: kept},
		{Position: 6, OpenedAt: at(40), SealedAt: at(50), CompactsAt: at(90), Retention: kept},
		{Position: 5, OpenedAt: at(30), SealedAt: at(40), IdleSince: at(45), CompactsAt: at(93),
			Retention: kept},
	}}
	env := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "/v1/task-types/pipe/rolls", r.RequestURI)
		answer(w, 200, list)
	})
	const day = "1970-01-01T00:"
	want := "ROLL  TABLES  TASKS  BYTES  OPENED                    SEALED                    " +
		"IDLE                      GOES\n" +
		"9     own     70     81920  " + day + "01:00.000Z  -                         " +
		"-                         next one at 1000 tasks or " + day + "02:00.000Z\n" +
		"8     own     0      1      " + day + "00:50.000Z  " + day + "01:00.000Z  " +
		"-                         2d after its last task ends, or later\n" +
		"7     shared  5      0      " + day + "00:40.000Z  " + day + "00:50.000Z  " +
		day + "00:55.000Z  " + day + "01:39.000Z\n" +
		"6     shared  0      0      " + day + "00:40.000Z  " + day + "00:50.000Z  " +
		"-                         " + day + "01:30.000Z, but for live tasks\n" +
		"5     shared  0      0      " + day + "00:30.000Z  " + day + "00:40.000Z  " +
		day + "00:45.000Z  " + day + "01:33.000Z\n"
	require.Equal(t, ran{0, want, ""}, runCLI(t, env, "types", "rolls", "pipe"))
	list.Older = 4
	require.Equal(t, want+"\nolder  4\n", runCLI(t, env, "types", "rolls", "pipe").stdout)
}
