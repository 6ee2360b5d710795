package callbacks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks/internal/transport"
)

// Only tokens that we made verify, in the one spelling that we gave them. All of ours verify.
func FuzzCompletionToken(f *testing.F) {
	keys := testKeys(f, nodeSecret)
	f.Fuzz(func(t *testing.T, token, claims, name string, seq uint16, expiry int64) {
		verify := func(token string) {
			c, err := keys.VerifyCompletion(token, testCompletion.Task)
			if err != nil {
				require.Equal(t, asyncflow.CodeUnauthenticated, asyncflow.CodeOf(err))
				return
			}
			require.Equal(t, testCompletion.Task, c.Task)
			require.Equal(t, 4, strings.Count(c.Tenant+" "+c.Task.String()+" 1 1 "+c.Endpoint, " "),
				"claims can't be moved")
		}
		verify(token)
		signed := tokenPrefix + "." + claims
		// signed with the right key: the claims are odd
		verify(signed + "." + string(keys.all[0].macs.appendMAC(nil, []byte(signed))))
		if asyncflow.CheckName(name) != nil {
			return
		}
		want := Completion{Tenant: name, Task: asyncflow.NewTaskID(name, 1, 1), Seq: int(seq),
			Expiry: time.Unix(expiry%(1<<40), 0), Endpoint: name}
		made := keys.CompletionToken(want)
		got, err := keys.VerifyCompletion(made, want.Task)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Error(t, func() error {
			_, err := keys.VerifyCompletion(made+"A", want.Task)
			return err
		}())
	})
}

// A worker decodes what was put in: every field, and the context byte by byte.
func FuzzEnvelope(f *testing.F) {
	f.Fuzz(func(t *testing.T, context []byte, name string, position uint32, n uint64, attempt, most,
		seq uint16, deadline int64) {
		if asyncflow.CheckJSON(context) != nil || asyncflow.CheckName(name) != nil {
			return
		}
		id := asyncflow.NewTaskID(name, int(position%(1<<22-1))+1, int64(n%(1<<40-1))+1)
		at := time.Unix(0, deadline).UTC()
		d := asyncflow.Delivery{Lease: asyncflow.Lease{ID: id, Seq: int(seq), Stage: name,
			Attempt: int(attempt), Context: context},
			Endpoint: &asyncflow.Endpoint{}, MaxAttempts: int(most), Deadline: at}
		body := envelope(d, "https://tasks.example.com", "afc2.x.y")
		var got struct {
			TaskID      string `json:"task_id"`
			Type, Stage string
			Attempt     int
			MaxAttempts int `json:"max_attempts"`
			Seq         int
			Deadline    time.Time
			Context     json.RawMessage
			Callback    struct{ URL, Token string }
		}
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(&got), "%s", body)
		require.Equal(t, strings.Trim(string(context), " \t\r\n"), string(got.Context))
		require.True(t, at.Equal(got.Deadline))
		back, err := asyncflow.ParseTaskID(got.TaskID)
		require.NoError(t, err)
		require.Equal(t, id, back)
		require.Equal(t, []string{name, name}, []string{got.Type, got.Stage})
		require.Equal(t, []int{int(attempt), int(most), int(seq)},
			[]int{got.Attempt, got.MaxAttempts, got.Seq})
		require.Equal(t, "https://tasks.example.com/v1/callbacks/"+id.String(), got.Callback.URL)
		require.Equal(t, "afc2.x.y", got.Callback.Token)
	})
}

// Whatever a worker answers for several tasks, each outcome can be stored and is bounded. A result
// for one task changes nothing for the others.
func FuzzResults(f *testing.F) {
	s := NewSender(Config{MaxOutput: maxOutput}, testKeys(f, nodeSecret))
	all := deliveriesTo("https://w.example.com/", 3)
	whole := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 200}
	read := func(body []byte) []asyncflow.Outcome {
		return s.readResults(all, whole, "application/json", body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		outcomes := read(body)
		require.Len(t, outcomes, 3)
		done := 0
		for _, o := range outcomes {
			requireStorable(t, o, body)
			require.Equal(t, 200, o.Status)
			if o.Kind != asyncflow.OutcomeFailed {
				done++
			}
		}
		if done > 0 {
			require.True(t, json.Valid(body))
		}
		if !json.Valid(body) || bytes.ContainsAny(body, "]}") {
			return
		}
		for i, o := range read(fmt.Appendf(nil,
			`{"results":[{"task_id":"thumbnails.1.1"},%s,{"task_id":"thumbnails.1.3"}]}`, body)) {
			require.Equal(t, i != 1, o.Kind == asyncflow.OutcomeDone, "no scalar is a result: %s",
				body)
		}
	})
}

// requireStorable checks what holds for every outcome of an answer.
func requireStorable(t *testing.T, o asyncflow.Outcome, body []byte) {
	kinds := []asyncflow.OutcomeKind{asyncflow.OutcomeDone, asyncflow.OutcomeAccepted,
		asyncflow.OutcomeFailed, asyncflow.OutcomeRejected, asyncflow.OutcomeSnoozed,
		asyncflow.OutcomeCancelled}
	require.Contains(t, kinds, o.Kind)
	if o.Kind == asyncflow.OutcomeSnoozed {
		require.NoError(t, asyncflow.CheckSnooze(asyncflow.NewDuration(o.RetryAfter)))
	}
	require.True(t, utf8.ValidString(o.Error))
	require.NotContains(t, o.Error, "\x00")
	require.LessOrEqual(t, len(o.Error), MaxErrorBytes+len("…"))
	if o.Kind != asyncflow.OutcomeDone {
		require.Empty(t, o.Output)
	}
	if o.Output != nil {
		require.NoError(t, asyncflow.CheckJSON(o.Output))
		require.LessOrEqual(t, len(o.Output), maxOutput)
		require.Contains(t, string(body), string(o.Output), "byte by byte")
	}
	pause, _ := asyncflow.DefaultRetry.Next(asyncflow.Failure{Attempt: 1, Status: o.Status,
		Error: o.Error, RetryAfter: o.RetryAfter})
	require.GreaterOrEqual(t, pause, time.Second)
	require.LessOrEqual(t, pause, 10*time.Second)
}

// Whatever a worker answers, the outcome can be stored and is bounded.
func FuzzAnswer(f *testing.F) {
	f.Fuzz(func(t *testing.T, status uint16, contentType, after string, body []byte) {
		a := transport.Answer{Status: int(status), Body: body,
			Header: http.Header{"Retry-After": {after}}}
		if most := maxOutput + answerOverhead; len(body) > most {
			a.Body, a.BodyErr = body[:most], transport.ErrTooLarge
		}
		o, more := readStatus(a, answerFields)
		if more {
			o = readAnswer(o, contentType, a.Body, maxOutput)
		}
		requireStorable(t, o, body)
		require.Equal(t, int(status), o.Status)
		if status < 200 || status > 299 {
			require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
			require.LessOrEqual(t, o.RetryAfter, 24*time.Hour)
			require.GreaterOrEqual(t, o.RetryAfter, time.Duration(0))
		}
	})
}
