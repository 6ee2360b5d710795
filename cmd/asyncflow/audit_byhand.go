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

// byHand is something that a command does straight in the database: it has an entry in
// the audit of what belongs to no tenant.
type byHand struct {
	url        string // of the database
	action     string // as in the API, where it has the same
	objectType string
	object     string
	detail     map[string]any // may be added to until it is done
}

// do does it and writes the entry, whatever came of it.
func (b byHand) do(ctx context.Context, act func() error) error {
	err := act()
	if recorded := b.record(ctx, err); err == nil && recorded != nil {
		return fmt.Errorf("%s was done, but the audit has no entry of it: %w", b.action, recorded)
	}
	return err
}

// recordTime bounds the writing of an entry, also after an interrupt.
const recordTime = 5 * time.Second

func (b byHand) record(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	e := asyncflow.AuditEntry{Origin: asyncflow.AuditFromCLI, Subject: operatorName(),
		UserAgent: "asyncflow/" + version,
		Action:    b.action, ObjectType: b.objectType, Object: b.object, Detail: b.detail,
		Outcome: asyncflow.AuditDone}
	if err != nil {
		e.Outcome, e.Code = asyncflow.AuditFailed, string(asyncflow.CodeOf(err))
		switch asyncflow.CodeOf(err) {
		case asyncflow.CodeInvalid, asyncflow.CodeNotFound, asyncflow.CodeConflict:
			e.Outcome = asyncflow.AuditRefused
		}
	}
	return store.RecordByHand(ctx, b.url, e)
}

// operatorName returns who runs this program, as the system knows: user@host.
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
