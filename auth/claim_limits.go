package auth

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/asyncflow/asyncflow"
)

// Labels are what a token says of its claimers: see asyncflow.ClaimRules. They take the place of
// the labels that a caller gives.
type Labels asyncflow.ClaimerLabels

// Claimer returns them as those of a claimer.
func (l Labels) Claimer() asyncflow.ClaimerLabels { return asyncflow.ClaimerLabels(l) }

// UnmarshalJSON reads the labels of a token: each has a text or a list of texts. They are never
// nil, not even for null: a token that says something about labels must not let its bearer choose.
func (l *Labels) UnmarshalJSON(data []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	all := Labels{}
	for name, doc := range raw {
		var one string
		if json.Unmarshal(doc, &one) == nil {
			all[name] = []string{one}
			continue
		}
		var some []string
		if err := json.Unmarshal(doc, &some); err != nil {
			return err
		}
		all[name] = some
	}
	*l = all
	return asyncflow.CheckClaimerLabels("claims_labels", all.Claimer())
}

// Stages list where a token may claim: each entry is the name of a task type, for all of its
// stages, or type/stage.
type Stages []string

// MaxStages is the most entries in a token.
const MaxStages = 100

// Has reports whether a stage of a type is among them.
func (s Stages) Has(taskType, stage string) bool {
	return slices.Contains(s, taskType) || slices.Contains(s, taskType+"/"+stage)
}

func (s Stages) String() string { return strings.Join(s, ", ") }

// UnmarshalJSON reads the list of a token. It is never nil, not even for null: a token that says
// something about types must not allow them all.
func (s *Stages) UnmarshalJSON(data []byte) error {
	list := []string{}
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	if list == nil {
		list = []string{}
	}
	*s = list
	return s.check()
}

func (s Stages) check() error {
	if len(s) > MaxStages {
		return asyncflow.InvalidField("claims_types", "has %d entries; the limit is %d", len(s),
			MaxStages)
	}
	for _, one := range s {
		taskType, stage, both := strings.Cut(one, "/")
		if asyncflow.CheckName(taskType) != nil || both && asyncflow.CheckName(stage) != nil {
			return asyncflow.InvalidField("claims_types",
				"has %.80q; an entry is a task type, or type/stage", one)
		}
	}
	return nil
}
