package main

import (
	"fmt"
	"strings"
)

// redact returns a database URL without its password.
func redact(url string) string {
	before, rest, ok := strings.Cut(url, "://")
	_, after, ok2 := strings.Cut(rest, "@")
	if !ok || !ok2 {
		return url
	}
	return before + "://…@" + after
}

// printTour prints commands to try next, ready to paste.
func (d *dev) printTour(sampleID, image string) {
	w := d.g.stdout
	fmt.Fprintf(w, "\nThe console: %s/console\n", d.url)
	fmt.Fprintf(w, "\nasyncflow is running: %s, tenant %s. Stop it with Ctrl-C.\n", d.url, devTenant)
	fmt.Fprintf(w, "\nGo on in another terminal:\n\n  export ASYNCFLOW_URL=%s ASYNCFLOW_TOKEN=%s\n\n",
		d.url, d.token)
	if sampleID == "" {
		fmt.Fprintf(w,
			"  curl -s $ASYNCFLOW_URL/v1/task-types -H \"Authorization: Bearer $ASYNCFLOW_TOKEN\"\n\n")
		return
	}
	fmt.Fprintf(w, `  # what became of a sample, and each of its attempts
  curl -s $ASYNCFLOW_URL/v1/tasks/%[1]s -H "Authorization: Bearer $ASYNCFLOW_TOKEN"
  curl -s $ASYNCFLOW_URL/v1/tasks/%[1]s/attempts -H "Authorization: Bearer $ASYNCFLOW_TOKEN"

  # submit a task of your own
  curl -s $ASYNCFLOW_URL/v1/tasks -H "Authorization: Bearer $ASYNCFLOW_TOKEN" \
    -H 'Content-Type: application/json' -d '{"type":"thumbnails","context":{"image":"%[2]s"}}'

  # the newest tasks
  curl -s "$ASYNCFLOW_URL/v1/tasks?type=thumbnails&limit=5" \
    -H "Authorization: Bearer $ASYNCFLOW_TOKEN"

`, sampleID, image)
}
