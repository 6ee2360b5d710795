package checkup

import "fmt"

// Level says how much a finding matters.
type Level string

const (
	// LevelOK finds nothing wrong.
	LevelOK Level = "ok"
	// LevelNote is worth knowing, and may be meant so.
	LevelNote Level = "note"
	// LevelWarning costs something, or soon will.
	LevelWarning Level = "warning"
	// LevelProblem keeps tasks from their work, or may lose them.
	LevelProblem Level = "problem"
)

// Finding is what a check has found.
type Finding struct {
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Tenant string `json:"tenant,omitempty"`
	Text   string `json:"text"`
	// Do is what to do about it; "" for LevelOK only.
	Do string `json:"do,omitempty"`
	// Page is where the manual says more, within docs.
	Page string `json:"page,omitempty"`
}

// mostFindings bounds the findings of one check: the rest is only counted.
const mostFindings = 20

// findings are those of one check.
type findings struct {
	check, page string
	server      string // begins each text; "": that of the URL
	all         []Finding
	more        int // that were left out
}

func (f *findings) add(level Level, do, format string, args ...any) {
	f.addFor("", level, do, format, args...)
}

// addFor adds a finding about a tenant.
func (f *findings) addFor(tenant string, level Level, do, format string, args ...any) {
	if len(f.all) == mostFindings {
		f.more++
		return
	}
	f.all = append(f.all, Finding{Check: f.check, Level: level, Tenant: tenant,
		Text: f.server + fmt.Sprintf(format, args...), Do: do, Page: f.page})
}

// end returns the findings; one that all is well, in the words of a text, if there is none.
func (f *findings) end(well string) []Finding {
	switch {
	case len(f.all) == 0:
		return []Finding{{Check: f.check, Level: LevelOK, Text: well}}
	case f.more > 0:
		return append(f.all, Finding{Check: f.check, Level: LevelNote, Page: f.page,
			Text: fmt.Sprintf("and %d more like these", f.more),
			Do:   "run the doctor again once these are done"})
	}
	return f.all
}
