package report

import (
	"encoding/json"
	"os"
)

// WriteJSON writes figures to a file, unless its name is "".
func WriteJSON(file string, figures any) error {
	if file == "" {
		return nil
	}
	doc, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(doc, '\n'), 0o644)
}
