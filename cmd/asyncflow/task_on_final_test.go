package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/client/api"
)

func TestOnFinalText(t *testing.T) {
	t.Parallel()
	for want, task := range map[string]client.Task{
		"": {},
		"https://shop.example/ended": {
			OnFinal: &client.OnFinal{URL: "https://shop.example/ended"}},
		"https://shop.example/, if failed or cancelled": {
			OnFinal: &client.OnFinal{URL: "https://shop.example/",
				On: []client.Status{client.StatusFailed, client.StatusCancelled}}},
		"tells mail.1.7 to https://shop.example/": {
			Notification: &api.Notification{Task: "mail.1.7", URL: "https://shop.example/"}},
	} {
		assert.Equal(t, want, onFinalText(task))
	}
}

// The flags of tasks submit make an on_final.
func TestOnFinalFlags(t *testing.T) {
	t.Parallel()
	c := tasksSubmitCmd{Type: "mail", OnFinal: "https://shop.example/", OnFinalSecret: "whsec_x",
		On: []string{"failed"}}
	assert.NoError(t, c.check())
	assert.Equal(t, &client.OnFinal{URL: "https://shop.example/", Secret: "whsec_x",
		On: []client.Status{client.StatusFailed}}, c.template().OnFinal)
	c.OnFinal = ""
	assert.ErrorContains(t, c.check(), "--on needs --on-final")
}
