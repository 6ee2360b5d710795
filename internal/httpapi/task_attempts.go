package httpapi

import (
	"context"
	"strconv"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/cursor"
	"github.com/asyncflow/asyncflow/store"
)

// ListAttempts lists a page of the journal of a task.
func (s *Server) ListAttempts(
	ctx context.Context, r ListAttemptsRequestObject,
) (ListAttemptsResponseObject, error) {
	id, err := asyncflow.ParseTaskID(r.ID)
	if err != nil {
		return nil, err
	}
	list := cursor.Of("attempts of "+r.ID, r.Params)
	key, err := list.Read(r.Params.Cursor, 1)
	if err != nil {
		return nil, err
	}
	after, err := readSeq(key[0])
	if err != nil {
		return nil, cursor.Bad()
	}
	page, more, err := s.cfg.Store.AttemptPage(ctx, principalOf(ctx).Tenant, id, store.AttemptPage{
		After:   after,
		Limit:   pageLimit(r.Params.Limit),
		Outputs: r.Params.Outputs,
	})
	if err != nil {
		return nil, err
	}
	out := ListAttempts200JSONResponse{Data: make([]api.Attempt, len(page))}
	of, err := s.cfg.Store.JournalOf(ctx, principalOf(ctx).Tenant, id)
	if err != nil {
		return nil, err
	}
	if of.Erased != nil {
		out.Erased = erasureOut(*of.Erased)
	}
	out.Trace = of.Trace
	for i, a := range page {
		out.Data[i], out.NextCursor = attemptOut(a), list.Write(more, strconv.Itoa(a.Seq))
	}
	return out, nil
}

// maxSeq is the largest seq of a journal row.
const maxSeq = 1<<15 - 1

// readSeq parses the seq of a journal row; "" is 0.
func readSeq(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	seq, err := strconv.ParseUint(text, 10, 31)
	if err == nil && seq > maxSeq {
		err = strconv.ErrRange
	}
	return int(seq), err
}

func attemptOut(a store.Attempt) api.Attempt {
	out := api.Attempt{
		Seq:           a.Seq,
		At:            a.At,
		Stage:         a.Stage,
		Attempt:       a.Attempt,
		Outcome:       api.AttemptOutcome(a.Outcome),
		Final:         api.AttemptFinal(a.Final),
		Endpoint:      a.Endpoint,
		Node:          a.Node,
		Worker:        a.Worker,
		DurationMs:    float32(a.Duration.Seconds() * 1000),
		StatusCode:    a.Status,
		ErrorCode:     a.Code,
		Error:         a.Error,
		Output:        a.Output,
		OutputBytes:   a.LeftOut,
		OutputExcerpt: a.Excerpt,
		NextStage:     a.NextStage,
	}
	out.WaitMs = waitOf(a.Wait)
	if out.Claimer, out.Subject = asyncflow.ClaimerOf(a.Endpoint); out.Claimer == "" {
		out.Claimer, out.Subject = asyncflow.ListenerOf(a.Endpoint)
	}
	if a.Outcome == asyncflow.OutcomeChanged {
		out.Subject = asyncflow.ChangerOf(a.Endpoint)
	}
	if out.Claimer != "" || a.Outcome == asyncflow.OutcomeChanged {
		out.Endpoint = ""
	}
	for _, c := range a.Changes {
		out.Changes = append(out.Changes, api.OptionChange{
			Field: api.OptionChangeField(c.Field), Before: c.Before, After: c.After})
	}
	if a.NextTime != nil {
		out.NextTime = *a.NextTime
	}
	return out
}
