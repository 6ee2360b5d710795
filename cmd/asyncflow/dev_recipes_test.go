package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// recipePorts are the ports of the workers in docs/recipes.md.
var recipePorts = []string{"8085", "8086", "8087"}

var recipeResults = regexp.MustCompile(`(?m)^# (result  .*)$`)

// The commands in docs/recipes.md, in their order, give the results that it shows.
func TestDocumentedRecipes(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	for _, tool := range []string{"bash", "python3", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	page, err := os.ReadFile("../../docs/recipes.md")
	require.NoError(t, err)
	script := "set -e\n"
	for _, m := range workerBlocks.FindAllStringSubmatch(string(page), -1) {
		if !strings.Contains(m[2], " ID") { // of a task that the reader sees
			script += m[2]
		}
	}
	var ports []string
	for _, documented := range recipePorts {
		require.Contains(t, script, documented)
		_, port, err := net.SplitHostPort(freeAddress(t))
		require.NoError(t, err)
		ports = append(ports, documented, port)
	}
	data := pgtest.Dir(t)
	dev := start(t, nil, "dev", "--no-samples", "--addr=127.0.0.1:0", "--data="+data)
	require.NotEmpty(t, dev.url, dev.said())
	f := readDevFile(t, data)

	said := runRecipe(t, f, strings.NewReplacer(ports...).Replace(script))
	results := recipeResults.FindAllStringSubmatch(script, -1)
	require.Len(t, results, 4)
	for _, want := range results {
		assert.Contains(t, said, want[1])
	}
	c, err := client.New(f.URL, f.Token)
	require.NoError(t, err)
	albums, err := c.List(t.Context(), client.ListParams{Type: "album"})
	require.NoError(t, err)
	require.Len(t, albums.Data, 1, said)
	album, _ := ended(t, c, albums.Data[0].ID)
	assert.JSONEq(t, `{"files": ["front.jpg", "back.jpg"]}`, string(album.Result), "%+v", album)
	assert.Contains(t, outcomesOf(t, c, "parcel"), "snoozed")
}

// runRecipe runs a script with this asyncflow, and returns its output. What it leaves running ends
// with the test.
func runRecipe(t *testing.T, f devFile, script string) string {
	t.Helper()
	dir := t.TempDir()
	binary, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "asyncflow"),
		[]byte("#!/bin/sh\n"+beAsyncflow+"=1 exec '"+binary+"' \"$@\"\n"), 0o755))
	output, err := os.Create(filepath.Join(dir, "output")) // a pipe would wait for the worker, too
	require.NoError(t, err)
	defer output.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, output, output
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "ASYNCFLOW_URL="+f.URL,
		"ASYNCFLOW_TOKEN="+f.Token)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	err = cmd.Wait()
	said, _ := os.ReadFile(output.Name())
	require.NoError(t, err, string(said))
	return string(said)
}

// outcomesOf returns the outcomes of the attempts at the only task of a type.
func outcomesOf(t *testing.T, c *client.Client, taskType string) (all []string) {
	t.Helper()
	tasks, err := c.List(t.Context(), client.ListParams{Type: taskType})
	require.NoError(t, err)
	require.Len(t, tasks.Data, 1)
	attempts, err := c.Attempts(t.Context(), tasks.Data[0].ID)
	require.NoError(t, err)
	for _, a := range attempts {
		all = append(all, string(a.Outcome))
	}
	return all
}
