package thumbnails

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const maxBody = 1 << 20 // bytes of a delivery

// delivery is the part of a delivery's body that this worker uses. Fields that
// it doesn't know are ignored: asyncflow may add some.
type delivery struct {
	TaskID   string          `json:"task_id"`
	Stage    string          `json:"stage"`
	Attempt  int             `json:"attempt"`
	Deadline time.Time       `json:"deadline"` // after it a completion is refused
	Context  json.RawMessage `json:"context"`
	Callback callback        `json:"callback"`

	// Of a challenge, which asks whether the endpoint's owner wants deliveries: it is
	// echoed.
	Type      string `json:"type"`
	Challenge string `json:"challenge"`

	image string // from the context: the path of the image inside the folder
}

// callback is where, and with which token, a delivery is completed.
type callback struct {
	URL   string `json:"url"`
	Token string `json:"token"`
}

// answer is the body of a 200: the output, or the outcome "fail" with its error,
// which tells asyncflow not to try again.
type answer struct {
	Output  any    `json:"output,omitempty"`
	Outcome string `json:"outcome,omitempty"`
	Error   string `json:"error,omitempty"`
}

// newWebhook checks what the library leaves unchecked: an empty or short key
// would sign and verify, and protect nothing.
func newWebhook(secret string) (*standardwebhooks.Webhook, error) {
	encoded, ok := strings.CutPrefix(secret, "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		return nil, errors.New("the secret must be whsec_ and the base64 of 24 to 64 bytes")
	}
	return standardwebhooks.NewWebhookRaw(key)
}

// accept reads, verifies and parses the delivery in a request. When it returns
// false it has answered: 413 too large, 401 not signed with our secret within
// five minutes, 400 no delivery for this stage, or 200 with the outcome "fail"
// for a context that names no image, which no retry can mend; or 200 with the echo of a
// challenge.
func (w *Worker) accept(rw http.ResponseWriter, r *http.Request, stage string) (delivery, bool) {
	var d delivery
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, maxBody))
	if err != nil {
		refuse(rw, readStatus(err), "the body can't be read")
		return d, false
	}
	if err := w.webhook.Verify(body, r.Header); err != nil {
		w.log.Warn("delivery refused", "stage", stage, "webhook_id", r.Header.Get(standardwebhooks.HeaderWebhookID), "error", err)
		refuse(rw, http.StatusUnauthorized, "the signature doesn't verify")
		return d, false
	}
	err = json.Unmarshal(body, &d)
	if err == nil && d.Type == "asyncflow.challenge" {
		writeJSON(rw, http.StatusOK, map[string]string{"challenge": d.Challenge})
		return d, false
	}
	if err != nil || d.Stage != stage {
		refuse(rw, http.StatusBadRequest, fmt.Sprintf("the body is no delivery of the stage %q", stage))
		return d, false
	}
	if d.image, err = imageOf(d.Context); err != nil {
		writeJSON(rw, http.StatusOK, answer{Outcome: "fail", Error: err.Error()})
		return d, false
	}
	return d, true
}

// readStatus tells a body over the limit from a connection that broke.
func readStatus(err error) int {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusBadRequest
}

// imageOf returns the cleaned path that a context names.
func imageOf(context json.RawMessage) (string, error) {
	var c struct {
		Image string `json:"image"`
	}
	if err := json.Unmarshal(context, &c); err != nil || c.Image == "" {
		return "", errors.New(`the context must be an object such as {"image": "harbour.jpg"}`)
	}
	return path.Clean(c.Image), nil
}

func refuse(rw http.ResponseWriter, status int, message string) {
	writeJSON(rw, status, answer{Error: message})
}

// writeJSON answers with v. A client that has gone away is none of our concern:
// asyncflow delivers again.
func writeJSON(rw http.ResponseWriter, status int, v any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(v)
}
