package asyncflow_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestErrorText(t *testing.T) {
	t.Parallel()
	fields := []asyncflow.FieldError{{Field: "type", Message: "is required"},
		{Field: "url", Message: "is 1 byte"}}
	for _, c := range []struct {
		err         *asyncflow.Error
		text, shown string // for the log, for the caller
	}{
		{&asyncflow.Error{Code: asyncflow.CodeNotFound}, "not_found", "not_found"},
		{&asyncflow.Error{Code: asyncflow.CodeNotFound, Message: "no task a.1.1"}, "no task a.1.1",
			"no task a.1.1"},
		{&asyncflow.Error{Code: asyncflow.CodeInvalid, Fields: fields},
			"type is required; url is 1 byte",
			"type is required; url is 1 byte"},
		{&asyncflow.Error{Code: asyncflow.CodeInvalid, Message: "no", Fields: fields[:1]}, "no",
			"no"},
		{&asyncflow.Error{Code: asyncflow.CodeInternal, Op: `Get("a.1.1")`, Err: io.EOF},
			`Get("a.1.1"): internal: EOF`, "internal"},
		{asyncflow.Errorf(asyncflow.CodeConflict, "is %s", "final"), "is final", "is final"},
		{asyncflow.InvalidField("id", "is %d", 0), "id is 0", "id is 0"},
	} {
		t.Run(c.text, func(t *testing.T) {
			require.Equal(t, c.text, c.err.Error())
			require.Equal(t, c.shown, c.err.Detail())
		})
	}
}

func TestCodeOf(t *testing.T) {
	t.Parallel()
	gone := asyncflow.Errorf(asyncflow.CodeNotFound, "no task")
	for _, c := range []struct {
		err  error
		want asyncflow.Code
	}{
		{gone, asyncflow.CodeNotFound},
		{fmt.Errorf("Get: %w", gone), asyncflow.CodeNotFound},
		{&asyncflow.Error{Code: asyncflow.CodeUnavailable, Err: gone}, asyncflow.CodeUnavailable},
		{errors.Join(io.EOF, gone), asyncflow.CodeNotFound},
		{io.EOF, asyncflow.CodeInternal},
		{asyncflow.InvalidField("id", "is bad"), asyncflow.CodeInvalid},
	} {
		t.Run(string(c.want), func(t *testing.T) {
			require.Equal(t, c.want, asyncflow.CodeOf(c.err), "%v", c.err)
		})
	}
	require.ErrorIs(t, &asyncflow.Error{Code: asyncflow.CodeInternal, Err: io.EOF}, io.EOF)
	require.Empty(t, asyncflow.CodeOf(nil))
}
