package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// Exit codes; the description in cli.go explains them to users.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnavailable = 3
	exitNotFound    = 4
	exitForbidden   = 5
	exitTaskFailed  = 6
	exitNotFinal    = 7
)

// codedError is an error with an exit code of its own. Without an err, the output already said
// everything.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *codedError) Unwrap() error { return e.err }

// usageError marks err as a mistake in the command line.
func usageError(err error) error { return &codedError{exitUsage, err} }

// silent ends the program with an exit code and no message.
func silent(code int) error { return &codedError{code: code} }

// report writes the error to stderr in one line, and returns the exit code.
func report(stderr io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	var coded *codedError
	if !errors.As(err, &coded) || coded.err != nil {
		fmt.Fprintln(stderr, "asyncflow: "+explain(err))
	}
	return exitCode(err)
}

// exitCode is the one place where an error becomes an exit code.
func exitCode(err error) int {
	var coded *codedError
	var parse *kong.ParseError
	var known *asyncflow.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &parse):
		return exitUsage
	case !errors.As(err, &known):
		return exitFailed
	}
	switch known.Code {
	case asyncflow.CodeUnavailable, asyncflow.CodeRateLimited:
		return exitUnavailable
	case asyncflow.CodeNotFound:
		return exitNotFound
	case asyncflow.CodeUnauthenticated, asyncflow.CodeForbidden:
		return exitForbidden
	}
	return exitFailed
}

// explain returns the text of an error, with a remedy if one is known.
func explain(err error) string {
	var parse *kong.ParseError
	var connection *client.ConnectionError
	var answer *client.Error
	switch {
	case errors.Is(err, context.Canceled):
		return strings.ReplaceAll(err.Error(), context.Canceled.Error(), "interrupted")
	case errors.As(err, &parse) && strings.HasPrefix(err.Error(), "missing flags: "):
		return missingSettings(parse) + helpHint(parse)
	case errors.As(err, &parse):
		return err.Error() + helpHint(parse)
	case errors.As(err, &connection):
		return connection.Error() + connectionHint(connection)
	case errors.As(err, &answer) && answer.Status == 401:
		return err.Error() + " (set --token or ASYNCFLOW_TOKEN; asyncflow token create makes one)"
	case errors.As(err, &answer) && answer.Status >= 500 && answer.RequestID() != "":
		return err.Error() + " (request " + printable(answer.RequestID()) + ")"
	}
	return err.Error()
}

func helpHint(parse *kong.ParseError) string {
	command := "asyncflow"
	if parse.Context != nil && parse.Context.Selected() != nil {
		command = strings.TrimSpace(parse.Context.Selected().FullPath())
	}
	return " (see " + command + " --help)"
}

func connectionHint(c *client.ConnectionError) string {
	if !c.NotSent() {
		return ""
	}
	return ` (start one with "asyncflow dev" or "asyncflow serve", or set --url or ASYNCFLOW_URL)`
}
