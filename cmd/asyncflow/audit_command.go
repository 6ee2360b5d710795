package main

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// auditedCommand is a change that a command makes directly in the database. It has an entry in
// the operator's audit.
type auditedCommand struct {
	url        string // of the database
	action     string // as the API names it, where it has the same
	objectType string
	object     string
	detail     map[string]any // may grow until do has ended
}

// do makes the change and writes the entry, also if the change failed.
func (a auditedCommand) do(ctx context.Context, change func() error) error {
	err := change()
	if recorded := a.record(ctx, err); err == nil && recorded != nil {
		return fmt.Errorf("%s was done, but the audit has no entry of it: %w", a.action, recorded)
	}
	return err
}

// recordTime bounds the writing of an entry, also after an interrupt.
const recordTime = 5 * time.Second

func (a auditedCommand) record(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	e := asyncflow.AuditEntry{Origin: asyncflow.AuditFromCLI, Subject: operatorName(),
		UserAgent: "asyncflow/" + version,
		Action:    a.action, ObjectType: a.objectType, Object: a.object, Detail: a.detail,
		Outcome: asyncflow.AuditDone}
	if err != nil {
		e.Outcome, e.Code = asyncflow.AuditFailed, string(asyncflow.CodeOf(err))
		switch asyncflow.CodeOf(err) {
		case asyncflow.CodeInvalid, asyncflow.CodeNotFound, asyncflow.CodeConflict:
			e.Outcome = asyncflow.AuditRefused
		}
	}
	return store.RecordByHand(ctx, a.url, e)
}

// operatorName returns the user who runs this program, as user@host.
func operatorName() string {
	name := "uid-" + strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}
