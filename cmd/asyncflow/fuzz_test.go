package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// A document is refused with its problems, each in a line, or it keeps the rules.
func FuzzDocument(f *testing.F) {
	env := envOf(map[string]string{"URL": "https://w.example.com", "LIMIT": "7", "EMPTY": ""})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > 64<<10 {
			return
		}
		start := time.Now()
		doc, err := parseDocument(raw, env)
		require.Less(t, time.Since(start), 5*time.Second)
		if err != nil {
			var problems *documentError
			require.ErrorAs(t, err, &problems)
			require.NotEmpty(t, problems.fields)
			for _, p := range problems.fields {
				require.NotEmpty(t, p.Message)
			}
			require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
			return
		}
		require.Empty(t, doc.check())
	})
}

// The settings that are lists are refused by the name of their flag, or name what there
// is.
func FuzzListFlags(f *testing.F) {
	f.Fuzz(func(t *testing.T, jobs, allow, deny string) {
		schedules, err := jobFlags{Job: []string{jobs}}.schedules()
		if err != nil {
			require.ErrorContains(t, err, "--job")
			require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
		}
		for name := range schedules {
			require.NotEmpty(t, name)
		}
		policy, err := egressFlags{EgressAllow: []string{allow}, EgressDeny: []string{deny}}.policy(false, false)
		if err != nil {
			require.Regexp(t, "^--egress-(allow|deny) has the entry", err.Error())
			require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
			return
		}
		require.Len(t, policy.Allow, 1)
		require.Len(t, policy.Deny, 1)
	})
}
