package callbacks

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks/internal/transport"
)

const (
	// ChallengeTime bounds a challenge, including its answer.
	ChallengeTime = 10 * time.Second
	// maxChallengeAnswer is how many bytes of the answer are read.
	maxChallengeAnswer = 4 << 10
)

// challenge is the body of a challenge. No task type goes by this name, so a worker can't mistake a
// challenge for a delivery.
type challenge struct {
	Type      string `json:"type"`
	Challenge string `json:"challenge"`
}

const challengeType = "asyncflow.challenge"

// Challenge asks an endpoint of a tenant to echo a random text. The request is signed and sent like
// a delivery. The error says why the echo failed, without quoting the endpoint.
func (s *Sender) Challenge(
	ctx context.Context, tenant string, e asyncflow.Endpoint, at time.Time,
) error {
	l := newLimit(ChallengeTime)
	to, err := s.openAnew(tenant, &e)
	if err != nil {
		return errors.New(Clean(err.Error(), MaxErrorBytes))
	}
	used, err := s.challenge(ctx, l, &e, to, at)
	if err != nil {
		return errors.New(to.settings.scrub(Clean(err.Error(), MaxErrorBytes), used))
	}
	return nil
}

func (s *Sender) challenge(
	ctx context.Context, l limit, e *asyncflow.Endpoint, to *opened, at time.Time,
) (login, error) {
	c := challenge{Type: challengeType, Challenge: rand.Text()}
	body, err := json.Marshal(c)
	if err != nil {
		return login{}, err
	}
	m := message{id: challengeType + "." + rand.Text(), at: at, body: body,
		maxAnswer: maxChallengeAnswer}
	x, err := s.post(ctx, l, e, to, m)
	if err != nil {
		return x.used, err
	}
	return x.used, c.checkAnswer(x.answer)
}

// checkAnswer checks that the challenge is in an answer.
func (c challenge) checkAnswer(a transport.Answer) error {
	switch {
	case a.Status != http.StatusOK:
		return notEchoed(a.Status)
	case errors.Is(a.BodyErr, transport.ErrTooLarge):
		return fmt.Errorf("the answer to the challenge has more than %d bytes", maxChallengeAnswer)
	case a.BodyErr != nil:
		return errors.New("the answer to the challenge broke off")
	}
	return c.checkEcho(a.Body)
}

// notEchoed explains an answer with a status other than 200. Workers answer 401 to a signature that
// doesn't verify.
func notEchoed(status int) error {
	why := ""
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		why = ". Workers answer so to a signature by another secret than theirs: " +
			"give the worker this endpoint's secret, or see whether its clock is right"
	}
	return fmt.Errorf("the challenge was answered with %d; it must be 200 and the challenge%s",
		status, why)
}

// checkEcho checks that the challenge is in the body of an answer.
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
