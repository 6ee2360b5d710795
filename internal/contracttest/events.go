package contracttest

import (
	"fmt"
	"strings"
	"sync"
)

// eventSchemas are the schemas of what events hold, by their kind. The contract can't say it
// but in a field of our own: to it a stream is a text.
var eventSchemas = sync.OnceValue(func() map[string]any {
	stream := Document().Paths.Value(
		"/v1/tasks/{id}/events").Get.Responses.Status(200).Value.Content["text/event-stream"]
	return stream.Extensions["x-events"].(map[string]any)
})

// CheckEvent holds an event of the stream of a task against the contract: its lines and its
// end, its kind, and its data.
func CheckEvent(event []byte) error {
	lines, ended := strings.CutSuffix(string(event), "\n\n")
	if !ended {
		return fmt.Errorf("it has no end")
	}
	fields := map[string]string{}
	for line := range strings.SplitSeq(lines, "\n") {
		name, value, _ := strings.Cut(line, ": ")
		if _, twice := fields[name]; twice || name != "event" && name != "id" && name != "data" {
			return fmt.Errorf("it has the line %q", line)
		}
		fields[name] = value
	}
	schema, ok := eventSchemas()[fields["event"]].(string)
	if !ok {
		return fmt.Errorf("there are no events of the kind %q", fields["event"])
	}
	return CheckJSON(schema, []byte(fields["data"]))
}
