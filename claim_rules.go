package asyncflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of ClaimRules and of ClaimerLabels. The rules, as JSON, take at most MaxClaimRules bytes.
const (
	MaxExcluded      = 20
	MaxExcludedName  = 255 // bytes
	MaxClaimLabels   = 16
	MaxClaimLabel    = 40      // bytes of a label's name
	MaxClaimValue    = 64      // bytes of a label's value
	MaxClaimRules    = 3 << 10 // bytes
	MaxClaimerLabels = 64      // values of all labels of a claimer
)

// ClaimRules say which claimers may get a task.
type ClaimRules struct {
	// Exclude are claimers, and subjects of their tokens, that may not get it. One that ends in *
	// stands for all with that beginning.
	Exclude []string `json:"exclude,omitempty"`
	// Labels are values that must be among a claimer's labels.
	Labels map[string]string `json:"labels,omitempty"`
}

// ClaimerLabels are what a claimer says of itself, or its token says of it: the values of each
// label.
type ClaimerLabels map[string][]string

// Allow reports whether a claimer with a token of a subject ("": none) and with labels may get the
// task. nil allows all.
func (r *ClaimRules) Allow(claimer, subject string, labels ClaimerLabels) bool {
	if r == nil {
		return true
	}
	excluded := slices.ContainsFunc(r.Exclude, func(one string) bool {
		return matchesName(one, claimer) || subject != "" && matchesName(one, subject)
	})
	if excluded {
		return false
	}
	for name, value := range r.Labels {
		if !slices.Contains(labels[name], value) {
			return false
		}
	}
	return true
}

// matchesName reports whether a name is the one of a list, or begins as an entry says.
func matchesName(one, name string) bool {
	prefix, all := strings.CutSuffix(one, "*")
	return one == name || all && strings.HasPrefix(name, prefix)
}

// Pairs returns the labels in the form name=value, in order.
func (l ClaimerLabels) Pairs() []string {
	pairs := []string{}
	for _, name := range slices.Sorted(maps.Keys(l)) {
		for _, value := range l[name] {
			pairs = append(pairs, name+"="+value)
		}
	}
	return pairs
}

// Text says for people whom the rules keep away; "": nobody.
func (r *ClaimRules) Text() string {
	if r == nil {
		return ""
	}
	var all []string
	if n := len(r.Labels); n > 0 {
		all = append(all, "only claimers with the labels "+strings.Join(r.pairs(), ", ")+
			" may have it")
	}
	switch n := len(r.Exclude); {
	case n == 1:
		all = append(all, "1 claimer is excluded")
	case n > 1:
		all = append(all, fmt.Sprintf("%d claimers are excluded", n))
	}
	return strings.Join(all, "; ")
}

// pairs returns the labels in the form name=value, in order.
func (r *ClaimRules) pairs() []string {
	labels := make(ClaimerLabels, len(r.Labels))
	for name, value := range r.Labels {
		labels[name] = []string{value}
	}
	return labels.Pairs()
}

// storedRules is how rules are stored beside a task in line: labels as name=value.
type storedRules struct {
	Exclude []string `json:"exclude,omitempty"`
	Labels  []string `json:"labels,omitempty"`
}

// Stored returns the rules as they are stored beside a task in line; nil: there are none.
func (r *ClaimRules) Stored() *string {
	if r == nil {
		return nil
	}
	doc, err := json.Marshal(storedRules{r.Exclude, r.pairs()})
	if err != nil {
		panic(err) // texts
	}
	text := string(doc)
	return &text
}

// ReadClaimRules returns the rules that Stored returned; nil: there are none.
func ReadClaimRules(doc []byte) (*ClaimRules, error) {
	if len(doc) == 0 {
		return nil, nil
	}
	var stored storedRules
	if err := json.Unmarshal(doc, &stored); err != nil {
		return nil, err
	}
	r := &ClaimRules{Exclude: stored.Exclude}
	for _, pair := range stored.Labels {
		if r.Labels == nil {
			r.Labels = map[string]string{}
		}
		name, value, _ := strings.Cut(pair, "=")
		r.Labels[name] = value
	}
	return r, nil
}

// CheckClaimRules refuses rules in a type without a stage from which tasks are claimed.
func (t TaskType) CheckClaimRules(r *ClaimRules) error {
	if some, _ := t.HasClaims(); some || r == nil {
		return nil
	}
	return InvalidField("claim", "needs a stage of mode claim, and %s has none", t.Name)
}

// IsEmpty reports whether they are rules that say nothing: as a change, they take the rules away.
func (r *ClaimRules) IsEmpty() bool { return r != nil && len(r.Exclude)+len(r.Labels) == 0 }

// Changed returns the rules of a task after a change; nil: it changes none.
func (r *ClaimRules) Changed(change *ClaimRules) *ClaimRules {
	switch {
	case change == nil:
		return r
	case change.IsEmpty():
		return nil
	}
	return change
}

// checkChange checks rules that replace others; empty ones stand for none.
func (r *ClaimRules) checkChange(out *problems) {
	if !r.IsEmpty() {
		r.check(out)
	}
}

// CheckClaimChange explains what is wrong with rules that replace those of a task.
func CheckClaimChange(r *ClaimRules) error {
	var out problems
	r.checkChange(&out)
	return out.err()
}

func (r *ClaimRules) check(out *problems) {
	if r == nil {
		return
	}
	if r.IsEmpty() {
		out.add("claim", "needs exclude or labels")
	}
	if n := len(r.Exclude); n > MaxExcluded {
		out.add("claim.exclude", "has %d names; the limit is %d", n, MaxExcluded)
		return
	}
	for _, one := range r.Exclude {
		if why := labelProblem(one, MaxExcludedName); why != "" {
			out.add("claim.exclude", "has %.80q, which %s", one, why)
		}
	}
	if n := len(r.Labels); n > MaxClaimLabels {
		out.add("claim.labels", "has %d labels; the limit is %d", n, MaxClaimLabels)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
		checkClaimLabel(out, "claim.labels", name, r.Labels[name])
	}
	if doc := r.Stored(); len(*doc) > MaxClaimRules {
		out.add("claim", "has %d bytes; the limit is %d", len(*doc), MaxClaimRules)
	}
}

// CheckClaimerLabels explains what is wrong with the labels of a claimer; field is their name.
func CheckClaimerLabels(field string, l ClaimerLabels) error {
	var out problems
	if n := len(l); n > MaxClaimLabels {
		out.add(field, "has %d labels; the limit is %d", n, MaxClaimLabels)
		return out.err()
	}
	values := 0
	for _, name := range slices.Sorted(maps.Keys(l)) {
		if values += len(l[name]); values > MaxClaimerLabels {
			out.add(field, "has more than %d values", MaxClaimerLabels)
			return out.err()
		}
		for _, value := range l[name] {
			checkClaimLabel(&out, field, name, value)
		}
	}
	return out.err()
}

func checkClaimLabel(out *problems, field, name, value string) {
	if len(name) > MaxClaimLabel || !labelName.MatchString(name) {
		out.add(field, "has the label %.80q; a name is 1 to %d letters, digits and _ . : / -, and "+
			"begins with a letter or digit", name, MaxClaimLabel)
	}
	if why := labelProblem(value, MaxClaimValue); why != "" {
		out.add(field, "has the value %.80q, which %s", value, why)
	}
}

// labelProblem says what is wrong with a text of 1 to most bytes; "": nothing.
func labelProblem(text string, most int) string {
	switch {
	case text == "":
		return "is empty"
	case len(text) > most:
		return "is too long"
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return "must be UTF-8 without control characters"
	}
	return ""
}
