package asyncflow

import "maps"

// Mapped returns the stage and attempt with which a task continues, from the ones in its token row:
// the same ones or, if that stage was removed and mapped to another, the first attempt of the
// other.
func (t TaskType) Mapped(stage string, attempt int) (string, int) {
	if t.StageIndex(stage) < 0 {
		if to, ok := t.StageMapping[stage]; ok {
			return to, 1
		}
	}
	return stage, attempt
}

// NamesOf returns the names of a stage in token and journal rows: its own, and the names of removed
// stages that are mapped to it.
func (t TaskType) NamesOf(stage string) []string {
	names := []string{stage}
	for from, to := range t.StageMapping {
		if to == stage {
			names = append(names, from)
		}
	}
	return names
}

// After returns t as the successor of an older version: with the older mappings, too, unless their
// stages exist again. A mapping to a stage that was removed since leads to that stage's own
// mapping, if there is one.
func (t TaskType) After(old TaskType) TaskType {
	t.Notifies = old.Notifies
	merged := maps.Clone(old.StageMapping)
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, t.StageMapping)
	for from, to := range merged {
		if t.StageIndex(to) < 0 {
			to = t.StageMapping[to]
		}
		merged[from] = to
	}
	maps.DeleteFunc(merged,
		func(from, to string) bool { return t.StageIndex(from) >= 0 || t.StageIndex(to) < 0 })
	t.StageMapping = merged
	return t
}

// UnmappedStages returns the stages of an older version that t neither lists nor maps. Tasks may be
// in them.
func (t TaskType) UnmappedStages(old TaskType) []string {
	var names []string
	for _, name := range old.StageNames() {
		names = t.appendUnmapped(names, name)
	}
	for name := range old.StageMapping {
		names = t.appendUnmapped(names, name)
	}
	return names
}

func (t TaskType) appendUnmapped(names []string, name string) []string {
	if stage, _ := t.Mapped(name, 1); t.StageIndex(stage) < 0 {
		return append(names, name)
	}
	return names
}

func (t TaskType) checkMapping(out *problems) {
	if n := len(t.StageMapping); n > MaxStageMappings {
		out.add("stage_mapping", "has %d entries; the limit is %d", n, MaxStageMappings)
		return
	}
	for from, to := range t.StageMapping {
		field := "stage_mapping." + from
		switch {
		case CheckName(from) != nil:
			out.add(field, "is not the name of a stage: %v", CheckName(from))
		case t.StageIndex(from) >= 0:
			out.add(field, "is for a stage that is not removed")
		case t.StageIndex(to) < 0:
			out.add(field, "is %q, which is not a stage", to)
		}
	}
}
