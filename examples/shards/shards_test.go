package shards_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"os"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/examples/shards"
	"github.com/asyncflow/asyncflow/internal/document"
	"github.com/asyncflow/asyncflow/internal/testnode"
)

const (
	secret   = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	patience = 2 * time.Minute
)

// start serves a worker, and returns its URL.
func start(t *testing.T) string {
	t.Helper()
	w, err := shards.New(shards.Config{Texts: os.DirFS("texts"), Secret: secret,
		Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	server := httptest.NewServer(w)
	t.Cleanup(func() {
		server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, w.Close(ctx))
	})
	return server.URL
}

// The whole sample: a node, two workers, the document, and a task.
func TestWholeSample(t *testing.T) {
	t.Parallel()
	node := testnode.Shared()
	c, err := client.New(node.URL, node.Token)
	require.NoError(t, err)
	env := map[string]string{"SHARDS_URL_1": start(t), "SHARDS_URL_2": start(t),
		"SHARDS_SECRET": secret}
	text, err := os.ReadFile("asyncflow.yaml")
	require.NoError(t, err)
	doc, err := document.Parse(text, func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	})
	require.NoError(t, err)
	require.NoError(t, doc.Apply(t.Context(), c, func(document.Change) {}))

	task, err := c.Submit(t.Context(), client.NewTask{Type: "words", Context: client.JSON(`{}`)})
	require.NoError(t, err)
	done, err := c.Wait(t.Context(), task.ID, patience)
	require.NoError(t, err)
	require.Equal(t, client.StatusSucceeded, done.Status, done.Error)
	assert.Equal(t, 8, done.Children.Succeeded)
	var got shards.Total
	require.NoError(t, json.Unmarshal(done.Result, &got))
	whole, err := shards.Count(os.DirFS("texts"), 0, 1)
	require.NoError(t, err)
	assert.Equal(t, shards.Sum([]shards.Counts{whole}), got)
	assert.Equal(t, "the", got.Top[0].Word)
	assert.Greater(t, got.Lines, 50)
}

func TestCount(t *testing.T) {
	t.Parallel()
	texts := fstest.MapFS{"a.txt": {Data: []byte("One, two.\nTWO don't\n")},
		"b.txt": {Data: []byte("three\nthree three")}, "c.md": {Data: []byte("no text")}}
	var all []shards.Counts
	for shard := range 3 {
		c, err := shards.Count(texts, shard, 3)
		require.NoError(t, err)
		all = append(all, c)
	}
	assert.Equal(t, shards.Counts{Lines: 2, Words: map[string]int{"one": 1, "two": 1, "three": 2}},
		all[0])
	assert.Equal(t, shards.Total{Lines: 4, Words: 8, Distinct: 5, Top: []shards.WordCount{
		{Word: "three", Count: 3}, {Word: "two", Count: 2}, {Word: "don", Count: 1},
		{Word: "one", Count: 1}, {Word: "t", Count: 1}}}, shards.Sum(all))
}
