package main

import (
	"fmt"

	"github.com/asyncflow/asyncflow/client"
)

// taskListing is the JSON document of a list of tasks.
type taskListing struct {
	listing[client.Task]
	Searched client.Searched `json:"searched,omitzero"`
}

// addSearched returns what was searched for some pages and the one after them. A page that is full
// doesn't say what was searched for it.
func addSearched(all, page client.Searched) client.Searched {
	all.Tasks += page.Tasks
	all.ByIndex += page.ByIndex
	if all.From.IsZero() || !page.From.IsZero() && page.From.Before(all.From) {
		all.From = page.From
	}
	if page.Until.After(all.Until) {
		all.Until = page.Until
	}
	all.NextType = page.NextType
	return all
}

// printSearched says among which tasks a list was searched for, on the standard error, so that the
// output stays a table.
func (g *globals) printSearched(s client.Searched) error {
	if s.Tasks == 0 {
		return nil
	}
	text := "searched " + plural(int64(s.Tasks))
	if s.ByIndex > 0 {
		text += fmt.Sprintf(", %d of them by a searchable field", s.ByIndex)
	}
	if !s.From.IsZero() {
		text += ", submitted from " + timeText(s.From) + " until " + timeText(s.Until)
	}
	if s.NextType != "" {
		text += "; not yet the type " + s.NextType + " and later ones"
	}
	_, err := fmt.Fprintln(g.stderr, text)
	return err
}

// printCounted says how far a count came that isn't exact.
func (g *globals) printCounted(n client.TaskCount) error {
	s := n.Searched
	if n.Exact || s.Tasks == 0 {
		return nil
	}
	text := "searched " + plural(int64(s.Tasks))
	if !s.From.IsZero() {
		text += ", submitted from " + timeText(s.From) + " on"
	}
	if s.InType != "" {
		text += "; ended in the type " + s.InType
	}
	_, err := fmt.Fprintln(g.stderr, text+"; --exact counts all")
	return err
}
