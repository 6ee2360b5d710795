package openapi

import (
	"fmt"
	"maps"
	"strings"
	"sync"
)

// eventSchemas are the schemas of the data of events, by kind. OpenAPI can't express them, because
// to it a stream is a text: so the contract lists them in a field of our own.
var eventSchemas = sync.OnceValue(func() map[string]any {
	doc, err := Document()
	if err != nil {
		panic(err)
	}
	all := map[string]any{}
	for _, path := range []string{"/v1/tasks/{id}/events", "/v1/stats/events"} {
		ok := doc.Paths.Value(path).Get.Responses.Status(200).Value
		stream := ok.Content["text/event-stream"]
		maps.Copy(all, stream.Extensions["x-events"].(map[string]any))
	}
	return all
})

// CheckEvent checks an event of a stream against the contract: its lines and its end, its
// kind, and its data.
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
