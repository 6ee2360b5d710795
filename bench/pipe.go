package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/asyncflow/asyncflow/store"
)

// pipe is a task type of one stage that is measured.
type pipe struct {
	name      string
	history   int64 // number of the last task that was put there finished; 0: none was
	submitted int   // tasks after it
}

func (b *bench) makeTenant(ctx context.Context) error {
	_, err := store.CreateTenant(ctx, b.url(), tenant)
	return err
}

// register makes a task type of one stage, and its endpoint. More are members of the
// type's document, each with a comma behind it.
func (b *bench) register(ctx context.Context, name, more string) (*pipe, error) {
	if _, err := b.api.call(ctx, http.MethodPut, "/v1/task-types/"+name, []byte(`{`+more+`"stages":[{"name":"call"}]}`)); err != nil {
		return nil, err
	}
	endpoint := fmt.Sprintf(`{"type":%q,"stage":"call","url":%q}`, name, b.sink.base+deliveryPath)
	_, err := b.api.call(ctx, http.MethodPost, "/v1/endpoints", []byte(endpoint))
	return &pipe{name: name}, err
}

// take returns the number of the first of the next tasks, which are of this type.
func (b *bench) take(p *pipe, tasks int) int {
	first := b.next
	b.next += tasks
	p.submitted += tasks
	return first
}
