package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// Settings that are lists are refused with the name of their flag, or are valid.
func FuzzListFlags(f *testing.F) {
	f.Fuzz(func(t *testing.T, jobs, allow, deny string) {
		timetable, err := jobFlags{Job: []string{jobs}}.timetable()
		if err != nil {
			require.ErrorContains(t, err, "--job")
			require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
		}
		for name := range timetable {
			require.NotEmpty(t, name)
		}
		policy, err := egressFlags{EgressAllow: []string{allow},
			EgressDeny: []string{deny}}.policy(false,
			false)
		if err != nil {
			require.Regexp(t, "^--egress-(allow|deny) has the entry", err.Error())
			require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
			return
		}
		require.Len(t, policy.Allow, 1)
		require.Len(t, policy.Deny, 1)
	})
}
