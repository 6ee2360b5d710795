package asyncflow

import (
	"fmt"
	"strings"
	"time"
)

// maxStoppedReason is how many bytes of the reason an endpoint's sentence has.
const maxStoppedReason = 500

// StoppedText says which endpoints of a stage get no deliveries now, until when and why; "": all
// get some.
func StoppedText(endpoints []Endpoint, now time.Time) string {
	var texts []string
	for i := range endpoints {
		if text := endpoints[i].stoppedText(now); text != "" && endpoints[i].Serves() {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "; ")
}

func (e *Endpoint) stoppedText(now time.Time) string {
	text := "Deliveries to " + e.URL + " have stopped until "
	switch e.Health.At(now) {
	case HealthOpen:
		text += e.Health.Until.UTC().Format(time.RFC3339)
	case HealthHalfOpen:
		text += "one task succeeds, which is tried now"
	case HealthDisabled:
		text += fmt.Sprintf("the endpoint %s is enabled", e.ID)
	default:
		return ""
	}
	if e.Health.Reason != "" {
		text += ": " + cutText(e.Health.Reason, maxStoppedReason)
	}
	return text
}

// cutText returns the first n bytes of a text at most, in whole characters.
func cutText(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}
