package httpapi

import (
	"strings"

	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

func operationOut(o store.Operation) api.Operation {
	var children *bool
	if o.Filter.NoChildren {
		children = new(bool)
	}
	var parent string
	if o.Filter.Parent.Type != "" {
		parent = o.Filter.Parent.String()
	}
	var ids []string
	for _, id := range o.Filter.IDs {
		ids = append(ids, id.String())
	}
	metadata := ""
	if l := o.Filter.Labels; l.Name != "" {
		metadata = l.Name + "=" + l.Value
	}
	return api.Operation{
		ID:   o.ID,
		Kind: api.OperationKind(o.Kind),
		Type: o.Filter.Type,
		Filter: api.OperationFilter{
			Status:  o.Filter.Status,
			Stage:   o.Filter.Stage,
			Error:   o.Filter.Error,
			Code:    o.Filter.Code,
			Key:     o.Filter.Key,
			FlowKey: o.Filter.FlowKey,
			Worker:  o.Filter.Worker,
			Since:   o.Filter.Since,
			Until:   o.Filter.Until,
			Parent:  parent,
			User:    o.Filter.Labels.User,
			Tags:    strings.Join(o.Filter.Labels.Tags, ","),
			AnyTags: strings.Join(o.Filter.Labels.AnyTags, ","),
			Ids:     ids,

			EndedSince: o.Filter.EndedSince,
			EndedUntil: o.Filter.EndedUntil,
			Attempts:   o.Filter.Attempts,
			AllTypes:   o.AllTypes,
			Metadata:   metadata,
			Children:   children,

			Fingerprint: o.Filter.Fingerprint,
		},
		State:      api.OperationState(o.State),
		Total:      o.Total,
		Done:       o.Done,
		Skipped:    o.Skipped,
		Pace:       float32(o.Pace),
		Error:      o.Error,
		CreatedAt:  o.CreatedAt,
		FinishedAt: o.FinishedAt,

		ContextPatch: o.ContextPatch,
	}
}
