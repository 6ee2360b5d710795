package moderation_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/examples/moderation"
	"github.com/asyncflow/asyncflow/internal/document"
	"github.com/asyncflow/asyncflow/internal/testnode"
)

const patience = 2 * time.Minute

// person uses the page.
type person struct {
	t         *testing.T
	url, name string
	page      string // what it shows
}

var field = regexp.MustCompile(`name="task" value="([^"]+)"`)

func (p *person) look() {
	p.t.Helper()
	p.read(http.Get(p.url + "/?name=" + p.name))
}

// see looks until the page shows an image.
func (p *person) see(image string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		p.look()
		return strings.Contains(p.page, "/images/"+image)
	}, patience, 20*time.Millisecond, image)
}

func (p *person) say(label string) {
	p.t.Helper()
	found := field.FindStringSubmatch(p.page)
	require.NotNil(p.t, found, p.page)
	p.read(http.PostForm(p.url+"/vote", url.Values{"name": {p.name}, "task": {found[1]},
		"label": {label}}))
}

func (p *person) read(resp *http.Response, err error) {
	p.t.Helper()
	require.NoError(p.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	require.Equal(p.t, 200, resp.StatusCode, "%s", body)
	p.page = string(body)
}

// The whole sample: a node, the document, two images, and four people.
func TestWholeSample(t *testing.T) {
	t.Parallel()
	node := testnode.Shared()
	c, err := client.New(node.URL, node.Token)
	require.NoError(t, err)
	text, err := os.ReadFile("asyncflow.yaml")
	require.NoError(t, err)
	doc, err := document.Parse(text, os.LookupEnv)
	require.NoError(t, err)
	require.NoError(t, doc.Apply(t.Context(), c, func(document.Change) {}))
	server := httptest.NewServer(moderation.New(moderation.Config{Client: c, Wait: time.Second}))
	defer server.Close()

	submit := func(image string) string {
		task, err := c.Submit(t.Context(), client.NewTask{Type: "moderation",
			Context: client.JSON(`{"image":"` + image + `"}`)})
		require.NoError(t, err)
		return task.ID
	}
	people := map[string]*person{}
	for _, name := range []string{"anna", "bob", "carol", "dora"} {
		people[name] = &person{t: t, url: server.URL, name: name}
	}
	harbour := submit("harbour.svg")
	people["anna"].see("harbour.svg") // its votes are first in line
	sign := submit("sign.svg")
	for _, name := range []string{"anna", "bob", "carol"} {
		p := people[name]
		p.see("harbour.svg")
		p.see("harbour.svg") // again: it shows the same image
		image, err := http.Get(server.URL + "/images/harbour.svg")
		require.NoError(t, err)
		require.NoError(t, image.Body.Close())
		assert.Equal(t, "image/svg+xml", image.Header.Get("Content-Type"))
		label := "fine"
		if name == "bob" {
			label = "not fine"
		}
		p.say(label)
		p.see("sign.svg") // the next one
	}
	people["dora"].see("harbour.svg")
	people["dora"].say("fine")
	task, err := c.Wait(t.Context(), harbour, patience)
	require.NoError(t, err)
	assert.Equal(t, client.StatusSucceeded, task.Status)
	votes, err := c.Votes(t.Context(), harbour)
	require.NoError(t, err)
	assert.Equal(t, []any{true, `"fine"`, 4}, []any{votes.Decided, string(votes.Outcome),
		len(votes.Data)})
	for _, name := range []string{"anna", "bob", "carol"} {
		people[name].say("not fine")
	}
	task, err = c.Wait(t.Context(), sign, patience)
	require.NoError(t, err)
	assert.Contains(t, string(task.Result), `"outcome":"not fine"`)
	people["anna"].look()
	assert.Contains(t, people["anna"].page, "nothing to judge")
}
