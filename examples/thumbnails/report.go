package thumbnails

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// errTooLate: asyncflow has ended the attempt, so the result is of no use.
var errTooLate = errors.New("the attempt is over")

const (
	reportTimeout = 10 * time.Second // of one try
	reportMaxWait = 30 * time.Second // between two tries, whatever the server asks for
)

// reporter sends completions to asyncflow.
type reporter struct{ client *retryablehttp.Client }

// newReporter returns a reporter that tries again after wait, then after twice
// as long and so on, until the context of a send ends. It follows no redirect:
// the token is for asyncflow only.
func newReporter(wait time.Duration) *reporter {
	client := retryablehttp.NewClient()
	client.Logger = nil
	client.RetryMax = math.MaxInt
	client.RetryWaitMin, client.RetryWaitMax = wait, max(wait, reportMaxWait)
	client.Backoff = backoff
	client.HTTPClient.Timeout = reportTimeout
	client.HTTPClient.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &reporter{client: client}
}

// send posts body as JSON to the callback's verb, "complete" or "fail", until it
// is answered or ctx ends. Failures of the network, 429 and 5xx are tried again.
// It returns nil when the report was accepted, errTooLate on 409, and else what
// stood in the way.
func (r *reporter) send(ctx context.Context, cb callback, verb string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(cb.URL, "/")+"/"+verb, data)
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	req.Header.Set("Authorization", "Bearer "+cb.Token)
	req.Header.Set("Content-Type", "application/json")
	res, err := r.client.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	defer func() { _ = res.Body.Close() }()                       // nothing to lose
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxBody)) // so that the connection is used again
	switch {
	case res.StatusCode == http.StatusConflict:
		return errTooLate
	case res.StatusCode/100 != 2:
		return fmt.Errorf("%s: refused with %s", verb, res.Status)
	}
	return nil
}

// backoff is the library's exponential wait, or the Retry-After of the answer,
// held between the two limits and cut by up to a half at random, so that workers
// that failed together don't come back together.
func backoff(least, most time.Duration, tries int, res *http.Response) time.Duration {
	wait := min(max(retryablehttp.DefaultBackoff(least, most, tries, res), least), most)
	return wait - rand.N(wait/2+1)
}
