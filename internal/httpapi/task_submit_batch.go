package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// submitTasks accepts a batch: each task gets a result of its own.
func (s *Server) submitTasks(c *fiber.Ctx) error {
	var body api.NewTaskBatch
	if err := decodeBody(c, &body); err != nil {
		return err
	}
	ctx, items := c.UserContext(), body.Tasks
	if n := len(items); n < 1 || n > asyncflow.MaxBatch {
		return asyncflow.InvalidField("tasks", "must have 1 to %d entries", asyncflow.MaxBatch)
	}
	good, refused, err := s.checkBatch(ctx, items)
	if err != nil {
		return err
	}
	if err := s.limitSubmits(ctx, good...); err != nil {
		return err
	}
	traceOf(ctx).Submits(good)
	submitted := s.cfg.Committer.Submit(ctx, principalOf(ctx).Tenant, good)
	s.giveBackChildren(ctx, good, submitted)
	doc, err := s.batchResults(refused, submitted)
	if err != nil {
		return err
	}
	return writeDocument(c, http.StatusCreated, doc)
}

// checkBatch returns the tasks of a batch that can be submitted and, for each of the others, the
// result; it is nil for a good one. The memory for the answer is set aside: it can be many times as
// long as the batch, and can't be refused once a task was submitted.
func (s *Server) checkBatch(
	ctx context.Context, items []api.BatchItem,
) (good []asyncflow.NewTask, refused [][]byte, err error) {
	memory := answerMemoryOf(ctx)
	if err := memory.Take(len(items) * submittedBytes); err != nil {
		return nil, nil, err
	}
	refused = make([][]byte, len(items))
	good = make([]asyncflow.NewTask, 0, len(items))
	now := s.cfg.Store.Clock.Now()
	quota := s.contextQuota(ctx)
	for i := range items {
		task, wrong := s.itemIn(&items[i])
		if wrong == nil {
			wrong = s.checkTask(ctx, &task, now, quota)
		}
		if wrong == nil {
			good = append(good, task)
			continue
		}
		refused[i], err = s.appendResult(nil, i, &store.Submitted{Err: wrong})
		if err != nil {
			return nil, nil, err
		}
		// Once as it is, and once in the answer.
		if err := memory.Take(2 * len(refused[i])); err != nil {
			return nil, nil, err
		}
	}
	return good, refused, nil
}

// itemIn returns a task of a batch, or which of its fields can't be read.
func (s *Server) itemIn(item *api.BatchItem) (asyncflow.NewTask, error) {
	if item.Err == nil {
		return taskIn(&item.NewTask), s.contract.CheckRetry(item.Raw)
	}
	return asyncflow.NewTask{}, s.explainTask(item.Raw, item.Err)
}

// batchResults returns the answer to a batch. refused holds the result of each task that was
// refused before; submitted holds the results of the others, in their order.
func (s *Server) batchResults(refused [][]byte, submitted []store.Submitted) ([]byte, error) {
	size := len(refused) * submittedBytes
	for _, result := range refused {
		size += len(result)
	}
	doc := append(make([]byte, 0, size), `{"tasks":[`...)
	for i, result := range refused {
		if i > 0 {
			doc = append(doc, ',')
		}
		if result != nil {
			doc = append(doc, result...)
			continue
		}
		var err error
		if doc, err = s.appendResult(doc, i, &submitted[0]); err != nil {
			return nil, err
		}
		submitted = submitted[1:]
	}
	return append(doc, "]}\n"...), nil
}

// appendResult appends the result of task i of a batch.
func (s *Server) appendResult(b []byte, i int, r *store.Submitted) ([]byte, error) {
	if r.Err == nil {
		return append(appendSubmitted(append(b, `{"task":`...), r), '}'), nil
	}
	if asyncflow.CodeOf(r.Err) == asyncflow.CodeInternal {
		s.log.Error("submit failed", "error", r.Err)
	}
	doc, err := encode(api.BatchResult{Error: itemProblem(i, r.Err)})
	return append(b, bytes.TrimSpace(doc)...), err
}

// itemProblem returns the problem of task i of a batch, with its fields named as tasks[i].field.
func itemProblem(i int, err error) api.Problem {
	p := problemOf(err)
	p.Errors = slices.Clone(p.Errors) // several tasks may share an error
	for n, f := range p.Errors {
		if p.Errors[n].Field = fmt.Sprintf("tasks[%d]", i); f.Field != "body" {
			p.Errors[n].Field += "." + f.Field
		}
	}
	return p
}
