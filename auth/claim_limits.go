package auth

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/asyncflow/asyncflow"
)

// ClaimLimits are what a token says about the claims of its bearer; nil: nothing.
type ClaimLimits struct {
	Claimers Claimers `json:"claimers,omitzero"`
	Labels   Labels   `json:"labels,omitzero"`
	Stages   Stages   `json:"types,omitzero"`
}

// IsZero reports whether the token says nothing about claims.
func (l ClaimLimits) IsZero() bool {
	return l.Claimers == nil && l.Labels == nil && l.Stages == nil
}

// String returns the limits for people, such as "claimers anna, desk-*; labels lang=de".
func (l ClaimLimits) String() string {
	var all []string
	add := func(name string, values []string, said bool) {
		if len(values) == 0 {
			values = []string{"none"}
		}
		if said {
			all = append(all, name+" "+strings.Join(values, ", "))
		}
	}
	add("claimers", l.Claimers, l.Claimers != nil)
	add("labels", l.Labels.Claimer().Pairs(), l.Labels != nil)
	add("types", l.Stages, l.Stages != nil)
	return strings.Join(all, "; ")
}

// Labels are what a token says about its claimers; see asyncflow.ClaimRules. They replace the
// labels of the call.
type Labels asyncflow.ClaimerLabels

// Claimer returns them as those of a claimer.
func (l Labels) Claimer() asyncflow.ClaimerLabels { return asyncflow.ClaimerLabels(l) }

// UnmarshalJSON reads the labels of a token: each is a text or a list of texts. The result is never
// nil, not even for null: a token with the claim must not let its bearer choose labels.
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

// Stages list where a token may claim. An entry is a task type, which stands for all of its stages,
// or type/stage.
type Stages []string

// MaxStages is the most entries in a token.
const MaxStages = 100

// Has reports whether a stage of a type is among them.
func (s Stages) Has(taskType, stage string) bool {
	return slices.Contains(s, taskType) || slices.Contains(s, taskType+"/"+stage)
}

func (s Stages) String() string { return strings.Join(s, ", ") }

// UnmarshalJSON reads the list of a token. The result is never nil, not even for null: a token with
// the claim must not allow all types.
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
