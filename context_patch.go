package asyncflow

import (
	"bytes"
	"encoding/json"
)

// MaxContextPatch bounds a patch of contexts, in bytes.
const MaxContextPatch = 16 << 10

// CheckContextPatch explains what is wrong with a patch for PatchContext, or returns nil. The patch
// is JSON.
func CheckContextPatch(patch json.RawMessage) error {
	if err := CheckDocument("context_patch", patch, MaxContextPatch); err != nil {
		return err
	}
	switch {
	case !isJSONObject(patch):
		return InvalidField("context_patch", "must be an object")
	case hasLoneSurrogate(patch):
		return InvalidField("context_patch", "has half of a surrogate pair, which is no character")
	}
	return nil
}

// PatchContext changes a context by a JSON merge patch (RFC 7396): members of the patch replace
// those of the context, null removes one, and objects within are merged in the same way. All other
// members stay as they are written. A context that is no object is CodeConflict.
func PatchContext(context, patch json.RawMessage) (json.RawMessage, error) {
	if !isJSONObject(context) {
		return nil, Errorf(CodeConflict,
			"the context is no JSON object, so context_patch doesn't apply to it")
	}
	return mergePatch(context, patch), nil
}

func isJSONObject(doc json.RawMessage) bool {
	return (&JSONWalk{Doc: doc}).Space() == '{'
}

// jsonMember is a member of an object: its name, the name as it is written, and its value.
type jsonMember struct {
	name        string
	text, value json.RawMessage
}

// membersOf returns the members of an object, and none of any other value. Of members with one name
// the last one counts, as for package json.
func membersOf(doc json.RawMessage) (all []jsonMember) {
	w := JSONWalk{Doc: doc}
	if w.Enter() != '{' {
		return nil
	}
	at := map[string]int{}
	for w.Next() {
		m := jsonMember{text: w.Name()}
		m.value = w.Skip()
		m.name = memberName(m.text)
		if i, again := at[m.name]; again {
			all[i].value = m.value
			continue
		}
		at[m.name] = len(all)
		all = append(all, m)
	}
	return all
}

// memberName decodes the name of a member. Names with half of a surrogate pair would all decode to
// U+FFFD, so such a name stays as it is written, after a byte that begins no other one.
func memberName(text json.RawMessage) (name string) {
	if hasLoneSurrogate(text) || json.Unmarshal(text, &name) != nil {
		return "\xff" + string(text)
	}
	return name
}

// mergePatch returns a document with a patch applied. The patch is not null.
func mergePatch(doc, patch json.RawMessage) json.RawMessage {
	if !isJSONObject(patch) {
		return patch
	}
	changes := map[string]json.RawMessage{}
	added := membersOf(patch)
	for _, m := range added {
		changes[m.name] = m.value
	}
	out := []byte{'{'}
	add := func(m jsonMember, value json.RawMessage) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, m.text...), ':'), value...)
	}
	patched := func(m jsonMember, before, change json.RawMessage) {
		if !bytes.Equal(change, []byte("null")) {
			add(m, mergePatch(before, change))
		}
	}
	for _, m := range membersOf(doc) {
		change, changed := changes[m.name]
		if !changed {
			add(m, m.value)
			continue
		}
		patched(m, m.value, change)
		delete(changes, m.name)
	}
	for _, m := range added {
		if change, left := changes[m.name]; left {
			patched(m, nil, change)
		}
	}
	return append(out, '}')
}
