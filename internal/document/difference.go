package document

// Difference is an item of a document that the server lacks, or has with other fields.
type Difference struct {
	Kind   string            `json:"kind"` // "type", "endpoint" or "schedule"
	Name   string            `json:"name"` // as in Change
	New    bool              `json:"new,omitempty"`
	Fields []FieldDifference `json:"fields,omitempty"`
	// Refused says why the server would refuse the change.
	Refused string `json:"refused,omitempty"`
}

// FieldDifference is a field that differs; "" is the value of one that isn't there.
type FieldDifference struct {
	Field string `json:"field"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
}

// Lines returns a line for the difference itself and one for each field.
func (d Difference) Lines() []string {
	sign := "~"
	if d.New {
		sign = "+"
	}
	lines := []string{sign + " " + d.Kind + " " + d.Name}
	for _, f := range d.Fields {
		lines = append(lines, "    "+f.String())
	}
	if d.Refused != "" {
		lines = append(lines, "    would be refused: "+d.Refused)
	}
	return lines
}

// String returns the field with its values before and after.
func (f FieldDifference) String() string {
	switch {
	case f.From == "":
		return f.Field + ": new, " + f.To
	case f.To == "":
		return f.Field + ": removed, was " + f.From
	}
	return f.Field + ": " + f.From + " becomes " + f.To
}
