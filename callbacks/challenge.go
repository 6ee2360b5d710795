package callbacks

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow"
)

const (
	// ChallengeTime bounds the whole exchange of a challenge.
	ChallengeTime = 10 * time.Second
	// maxChallengeAnswer bounds what is read of its answer, in bytes.
	maxChallengeAnswer = 4 << 10
)

// challenge is the body of a challenge. No task type has that name, so that a worker
// can't take one for a delivery.
type challenge struct {
	Type      string `json:"type"`
	Challenge string `json:"challenge"`
}

const challengeType = "asyncflow.challenge"

// Challenge asks an endpoint of a tenant to echo a random text, in a request that is signed and
// sent like a delivery. Its error says why it didn't, without what the endpoint wrote.
func (s *Sender) Challenge(ctx context.Context, tenant string, e asyncflow.Endpoint,
	at time.Time) error {
	r := newRequestContext(ctx, ChallengeTime)
	defer r.end()
	to, err := s.openAnew(tenant, &e)
	if err != nil {
		return errors.New(Clean(err.Error(), MaxErrorBytes))
	}
	if err = s.challenge(r, &e, to, at); err == nil {
		return nil
	}
	why := Clean(reason(r, err, ChallengeTime).Error(), MaxErrorBytes)
	return errors.New(to.settings.scrub(why, r.headers))
}

func (s *Sender) challenge(r *requestContext, e *asyncflow.Endpoint, to *opened,
	at time.Time) error {
	c := challenge{Type: challengeType, Challenge: rand.Text()}
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	resp, err := s.post(r, e, to, challengeType+"."+rand.Text(), at, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return notEchoed(resp.StatusCode)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxChallengeAnswer+1))
	switch {
	case r.Err() != nil:
		return r.Err()
	case err != nil:
		return errors.New("the answer to the challenge broke off")
	case len(answer) > maxChallengeAnswer:
		return fmt.Errorf("the answer to the challenge has more than %d bytes", maxChallengeAnswer)
	}
	return c.checkEcho(answer)
}

// notEchoed says what an answer with another status than 200 means. Workers answer 401 to a
// signature that doesn't verify.
func notEchoed(status int) error {
	why := ""
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		why = ". Workers answer so to a signature by another secret than theirs: " +
			"give the worker this endpoint's secret, or see whether its clock is right"
	}
	return fmt.Errorf("the challenge was answered with %d; it must be 200 and the challenge%s",
		status, why)
}

// checkEcho checks that an answer has the challenge.
func (c challenge) checkEcho(answer []byte) error {
	var echo challenge
	if json.Unmarshal(answer, &echo) != nil {
		return errors.New(`the answer to the challenge is not JSON such as {"challenge": "…"}`)
	}
	if subtle.ConstantTimeCompare([]byte(echo.Challenge), []byte(c.Challenge)) != 1 {
		return errors.New("the answer to the challenge has not the text that was sent")
	}
	return nil
}
