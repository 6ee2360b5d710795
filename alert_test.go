package asyncflow_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestAlertRules(t *testing.T) {
	t.Parallel()
	age := func(d time.Duration) asyncflow.Duration { return asyncflow.NewDuration(d) }
	for _, tc := range []struct {
		rules asyncflow.AlertRules
		field string
	}{
		{asyncflow.AlertRules{BacklogAge: age(time.Second)}, ""},
		{asyncflow.AlertRules{BacklogAge: age(30 * 24 * time.Hour), FailureRate: 0.01,
			FailureAttempts: 1_000_000}, ""},
		{asyncflow.AlertRules{FailureRate: 1}, ""},
		{asyncflow.AlertRules{}, "rules"},
		{asyncflow.AlertRules{FailureAttempts: 5}, "rules"},
		{asyncflow.AlertRules{BacklogAge: age(time.Millisecond)}, "rules.backlog_age"},
		{asyncflow.AlertRules{BacklogAge: age(-time.Minute)}, "rules.backlog_age"},
		{asyncflow.AlertRules{BacklogAge: age(30*24*time.Hour + 1)}, "rules.backlog_age"},
		{asyncflow.AlertRules{FailureRate: 0.009}, "rules.failure_rate"},
		{asyncflow.AlertRules{FailureRate: 1.1}, "rules.failure_rate"},
		{asyncflow.AlertRules{EndpointFailureRate: 1.1}, "rules.endpoint_failure_rate"},
		{asyncflow.AlertRules{FailureRate: 1, FailureAttempts: -1}, "rules.failure_attempts"},
		{asyncflow.AlertRules{FailureRate: 1, FailureAttempts: 1_000_001},
			"rules.failure_attempts"},
		{asyncflow.AlertRules{FailedForGood: 1}, ""},
		{asyncflow.AlertRules{FailedInTotal: 1_000_000, FailedWithin: age(24 * time.Hour)}, ""},
		{asyncflow.AlertRules{BlockedKey: age(time.Second)}, ""},
		{asyncflow.AlertRules{LongWait: age(10 * time.Millisecond), LongWaitWithin: age(time.Hour)},
			""},
		{asyncflow.AlertRules{FailedForGood: -1}, "rules.failed_for_good"},
		{asyncflow.AlertRules{FailedForGood: 1_000_001}, "rules.failed_for_good"},
		{asyncflow.AlertRules{FailedInTotal: 1_000_001}, "rules.failed_in_total"},
		{asyncflow.AlertRules{FailedForGood: 1, FailedWithin: age(59 * time.Second)},
			"rules.failed_within"},
		{asyncflow.AlertRules{FailedForGood: 1, FailedWithin: age(24*time.Hour + 1)},
			"rules.failed_within"},
		{asyncflow.AlertRules{FailureRate: 1, FailedWithin: age(time.Hour)}, "rules.failed_within"},
		{asyncflow.AlertRules{FailedWithin: age(time.Hour)}, "rules"},
		{asyncflow.AlertRules{BlockedKey: age(time.Millisecond)}, "rules.blocked_key"},
		{asyncflow.AlertRules{BlockedKey: age(30*24*time.Hour + 1)}, "rules.blocked_key"},
		{asyncflow.AlertRules{LongWait: age(9 * time.Millisecond)}, "rules.long_wait"},
		{asyncflow.AlertRules{LongWait: age(-time.Second)}, "rules.long_wait"},
		{asyncflow.AlertRules{LongWait: age(time.Second), LongWaitWithin: age(time.Second)},
			"rules.long_wait_within"},
		{asyncflow.AlertRules{LongWait: age(time.Second), LongWaitWithin: age(time.Hour + 1)},
			"rules.long_wait_within"},
		{asyncflow.AlertRules{FailureRate: 1, LongWaitWithin: age(time.Hour)},
			"rules.long_wait_within"},
	} {
		t.Run(fmt.Sprintf("%s %+v", tc.field, tc.rules), func(t *testing.T) {
			err := tc.rules.Validate()
			if tc.field == "" {
				require.NoError(t, err, "%+v", tc.rules)
				return
			}
			var known *asyncflow.Error
			require.ErrorAs(t, err, &known, "%+v", tc.rules)
			require.Equal(t, tc.field, known.Fields[0].Field)
		})
	}
	require.False(t, asyncflow.AlertRules{}.Enough(19))
	require.True(t, asyncflow.AlertRules{}.Enough(20))
	require.True(t, asyncflow.AlertRules{FailureAttempts: 1}.Enough(1))
}

func TestFollowEpisodes(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	read := func(subject string, value float64) asyncflow.AlertReading {
		return asyncflow.AlertReading{Alert: asyncflow.AlertBacklogAge, Subject: subject,
			Value: value, Limit: 300}
	}
	open := func(subject string) asyncflow.AlertReading {
		r := read(subject, 0)
		r.Open = true
		return r
	}
	going := asyncflow.Episode{ID: "1", AlertReading: read("mail", 310), Since: start}
	calm := func(e asyncflow.Episode, since time.Time) asyncflow.Episode {
		e.Below = since
		return e
	}
	over := func(e asyncflow.Episode, when time.Time, value float64) asyncflow.Episode {
		e.Resolved, e.ResolvedValue = when, value
		return e
	}
	other := read("mail", 300)
	other.Alert = asyncflow.AlertFailureRate
	for _, tc := range []struct {
		name     string
		open     []asyncflow.Episode
		readings []asyncflow.AlertReading
		at       time.Time
		begun    []asyncflow.AlertReading
		changed  []asyncflow.Episode
	}{
		{"nothing", nil, nil, at(0), nil, nil},
		{"below the limit", nil, []asyncflow.AlertReading{read("mail", 299.9)}, at(0), nil, nil},
		{"at the limit", nil, []asyncflow.AlertReading{read("mail", 300)}, at(0),
			[]asyncflow.AlertReading{read("mail", 300)}, nil},
		{"it goes on", []asyncflow.Episode{going}, []asyncflow.AlertReading{read("mail", 500)},
			at(15), nil, nil},
		{"another subject, another alert", []asyncflow.Episode{going},
			[]asyncflow.AlertReading{read("mail", 500), read("sms", 400), other}, at(15),
			[]asyncflow.AlertReading{read("sms", 400), other}, nil},
		{"it gets below", []asyncflow.Episode{going}, []asyncflow.AlertReading{read("mail", 10)},
			at(30),
			nil, []asyncflow.Episode{calm(going, at(30))}},
		{"it isn't measured any more", []asyncflow.Episode{going}, nil, at(30), nil,
			[]asyncflow.Episode{calm(going, at(30))}},
		{"below, for not long enough", []asyncflow.Episode{calm(going, at(30))},
			[]asyncflow.AlertReading{read("mail", 10)}, at(89), nil, nil},
		{"it gets over again", []asyncflow.Episode{calm(going, at(30))},
			[]asyncflow.AlertReading{read("mail", 300)}, at(89), nil, []asyncflow.Episode{going}},
		{"too little to measure while the circuit is open",
			[]asyncflow.Episode{calm(going, at(30))}, []asyncflow.AlertReading{open("mail")},
			at(90), nil,
			[]asyncflow.Episode{going}},
		{"that begins nothing", nil, []asyncflow.AlertReading{open("mail")}, at(0), nil, nil},
		{"below for a minute", []asyncflow.Episode{calm(going, at(30))},
			[]asyncflow.AlertReading{read("mail", 10)}, at(90), nil,
			[]asyncflow.Episode{over(calm(going, at(30)), at(90), 10)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			begun, changed := asyncflow.FollowEpisodes(tc.open, tc.readings, tc.at)
			require.Equal(t, tc.begun, begun)
			require.Equal(t, tc.changed, changed)
		})
	}
}

func TestNotices(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 21, 12, 0, 0, 0, time.FixedZone("far", 3600))
	e := asyncflow.Episode{ID: "e1", Since: since,
		AlertReading: asyncflow.AlertReading{Value: 310.5, Limit: 300}}
	for _, tc := range []struct {
		alert   asyncflow.AlertKind
		subject string
		what    string
	}{
		{asyncflow.AlertBacklogAge, "mail", `"tenant":"acme","type":"mail"`},
		{asyncflow.AlertFailureRate, "mail", `"tenant":"acme","type":"mail"`},
		{asyncflow.AlertEndpointFailing, "mail/send/0190",
			`"tenant":"acme","type":"mail","stage":"send","endpoint":"0190"`},
		{asyncflow.AlertEndpointMissing, "mail/send",
			`"tenant":"acme","type":"mail","stage":"send"`},
		{asyncflow.AlertDependencyLate, "mail", `"tenant":"acme","type":"mail"`},
		{asyncflow.AlertFailedForGood, "mail", `"tenant":"acme","type":"mail"`},
		{asyncflow.AlertFailedForGood, asyncflow.AllTypes, `"tenant":"acme"`},
		{asyncflow.AlertBlockedKey, "mail", `"tenant":"acme","type":"mail"`},
		{asyncflow.AlertLongWait, "mail", `"tenant":"acme","type":"mail"`},
		{asyncflow.AlertScheduleFailing, "nightly", `"tenant":"acme","schedule":"nightly"`},
		{asyncflow.AlertNodeGone, "host/1/x", `"node":"host/1/x"`},
		{asyncflow.AlertJobOverdue, "rescue", `"job":"rescue"`},
		{asyncflow.AlertRollOverdue, "other/mail", `"tenant":"other","type":"mail"`},
	} {
		t.Run(string(tc.alert), func(t *testing.T) {
			e.Alert, e.Subject = tc.alert, tc.subject
			require.JSONEq(t, `{"alert":"`+string(tc.alert)+`","state":"firing",`+tc.what+
				`,"since":"2026-11-21T11:00:00Z","value":310.5,"limit":300,"episode":"e1"}`,
				string(e.Notice("acme", asyncflow.AlertFiring)))
		})
	}
	require.Equal(t, []asyncflow.AlertState{asyncflow.AlertFiring}, e.PendingNotices())
	e.FiringTask = "t"
	require.Empty(t, e.PendingNotices())
	e.Resolved, e.ResolvedValue = since.Add(time.Hour), 2
	require.Equal(t, []asyncflow.AlertState{asyncflow.AlertResolved}, e.PendingNotices())
	e.FiringTask = ""
	require.Equal(t, []asyncflow.AlertState{asyncflow.AlertFiring, asyncflow.AlertResolved},
		e.PendingNotices())
	require.JSONEq(t,
		`{"alert":"roll_overdue","state":"resolved","tenant":"other","type":"mail",
		"since":"2026-11-21T11:00:00Z",
		"resolved_at":"2026-11-21T12:00:00Z","value":2,"limit":300,"episode":"e1"}`,
		string(e.Notice("acme", asyncflow.AlertResolved)))
}
