package worker

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

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/client/api"
)

// Callback is where to report on a delivery, and the token to do so. It may be stored and used by
// another process. The token is a secret until the attempt is over.
type Callback struct {
	URL   string `json:"url"`
	Token string `json:"token"`
}

// ofClaim returns the callback for calls that are only there for claims.
func (cb Callback) ofClaim() Callback {
	cb.URL = strings.Replace(cb.URL, "/v1/callbacks/", "/v1/claims/", 1)
	return cb
}

// Reporter reports on deliveries. It is safe for concurrent use.
type Reporter struct {
	retried *retryablehttp.Client
	once    *retryablehttp.Client
	name    string // of the worker; "": none is sent
}

const (
	reportTimeout = 10 * time.Second // of one try
	reportMinWait = 500 * time.Millisecond
	reportMaxWait = 30 * time.Second // the longest pause, whatever the server asks for
	maxReply      = 64 << 10         // bytes read of an answer to a report
)

// NewReporter returns a Reporter that sends through a transport, such as one with TLS settings;
// nil: a default one. It follows no redirects: the token is for asyncflow only.
func NewReporter(transport http.RoundTripper) *Reporter {
	return newReporter(transport, reportMinWait)
}

func newReporter(transport http.RoundTripper, wait time.Duration) *Reporter {
	retried := retryablehttp.NewClient()
	retried.Logger = nil
	retried.RetryMax = math.MaxInt
	retried.RetryWaitMin, retried.RetryWaitMax = wait, reportMaxWait
	retried.Backoff = backoff
	if transport != nil {
		retried.HTTPClient.Transport = transport
	}
	retried.HTTPClient.Timeout = reportTimeout
	retried.HTTPClient.CheckRedirect = func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}
	once := retryablehttp.NewClient()
	once.Logger, once.HTTPClient, once.RetryMax = nil, retried.HTTPClient, 0
	once.ErrorHandler = retryablehttp.PassthroughErrorHandler
	return &Reporter{retried: retried, once: once}
}

// Named returns a Reporter that sends the name of a worker, which is shown with the task: see
// Config.Name. A name that can't be one is not sent. The Reporter of a Worker sends the Worker's
// name; NewReporter makes one without.
func (r *Reporter) Named(name string) *Reporter {
	named := *r
	named.name = asyncflow.WorkerName(name)
	return &named
}

// Complete reports that the stage is done, with an output; nil: none. It retries failures of the
// network, 429 and 5xx until there is another answer, or ctx ends. The error wraps ErrLost if the
// attempt is over, and is a *client.Error if the report was refused for another reason. Steps say
// how the task goes on, and which tasks it starts.
func (r *Reporter) Complete(ctx context.Context, cb Callback, output any, step ...Step) error {
	o := done(output)
	for _, s := range step {
		o = o.to(s)
	}
	if o.kind != kindDone {
		return asyncflow.InvalidField("output", "%s", o.error)
	}
	return r.report(ctx, cb, o)
}

// Fail reports that the attempt failed: for good if err comes from Fail; otherwise it is retried,
// after a pause if err comes from Retry, and not counted if err comes from Snooze. It is sent like
// Complete.
func (r *Reporter) Fail(ctx context.Context, cb Callback, err error) error {
	o := outcomeOf(context.WithoutCancel(ctx), nil, err)
	if o.kind == kindDone || o.kind == kindAccepted {
		return asyncflow.InvalidField("err", "must be an error that says what failed")
	}
	return r.report(ctx, cb, o)
}

func (r *Reporter) report(ctx context.Context, cb Callback, o outcome) error {
	switch o.kind {
	case kindDone:
		return r.post(ctx, r.retried, cb, "complete", api.Completion{Output: api.JSON(o.output),
			NextStage: o.step.next, Finish: o.step.finish, Spawn: o.step.spawned(),
			Join: asyncflow.JoinOption{Join: o.step.join}}, nil)
	case kindSnooze:
		return r.post(ctx, r.retried, cb, "snooze", api.Snooze{Error: o.error,
			RetryAfter: asyncflow.NewDuration(o.retryAfter)}, nil)
	}
	return r.post(ctx, r.retried, cb, "fail", o.failure(), nil)
}

// Heartbeat postpones the attempt's deadline, and returns the new one. It is sent once. The error
// is ErrCancelled if the task was cancelled, and wraps ErrLost if the attempt is over for another
// reason.
func (r *Reporter) Heartbeat(ctx context.Context, cb Callback) (deadline time.Time, err error) {
	return r.heartbeat(ctx, cb, nil)
}

// Checkpoint leaves v, as JSON, for the next attempt of the stage. It is a Heartbeat.
func (r *Reporter) Checkpoint(ctx context.Context, cb Callback, v any) error {
	doc, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	_, err = r.heartbeat(ctx, cb, api.Heartbeat{Checkpoint: doc})
	return err
}

func (r *Reporter) heartbeat(
	ctx context.Context, cb Callback, body any,
) (deadline time.Time, err error) {
	var beat api.HeartbeatResult
	if err := r.post(ctx, r.once, cb, "heartbeat", body, &beat); err != nil {
		return time.Time{}, err
	}
	if beat.Status == asyncflow.StatusCancelled {
		return time.Time{}, ErrCancelled
	}
	return beat.Deadline, nil
}

// Release gives a claimed task back: no attempt is counted. It is sent once.
func (r *Reporter) Release(ctx context.Context, cb Callback) error {
	return r.post(ctx, r.once, cb.ofClaim(), "release", nil, nil)
}

// Answer reports what a worker answered to a claimed delivery that was passed on to it: it counts
// as the answer to a push. It is sent once.
func (r *Reporter) Answer(ctx context.Context, cb Callback, a client.ClaimAnswer) error {
	return r.post(ctx, r.once, cb.ofClaim(), "answer", a, nil)
}

// Open reports whether a claim is still open that was reported on before, and changes nothing. It
// is sent once; without an answer it returns true.
func (r *Reporter) Open(ctx context.Context, cb Callback) bool {
	err := r.Answer(ctx, cb, client.ClaimAnswer{Status: http.StatusAccepted})
	return !errors.Is(err, ErrLost)
}

// Progress reports the progress of the work: 0 to 100, and a message. Both are shown with the
// running task. It is sent once, and is not a heartbeat.
func (r *Reporter) Progress(ctx context.Context, cb Callback, percent int, note string) error {
	return r.post(ctx, r.once, cb, "progress",
		api.ProgressReport{Percent: percent, Note: note}, nil)
}

// post sends a report and reads its answer into into, unless into is nil.
func (r *Reporter) post(
	ctx context.Context, c *retryablehttp.Client, cb Callback, verb string, body, into any,
) error {
	var data []byte
	if body != nil {
		var err error
		if data, err = api.Encode(body); err != nil {
			return fmt.Errorf("%s: %w", verb, err)
		}
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost,
		strings.TrimSuffix(cb.URL, "/")+"/"+verb, data)
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	req.Header.Set("Authorization", "Bearer "+cb.Token)
	req.Header.Set("Content-Type", "application/json")
	if r.name != "" {
		req.Header.Set(asyncflow.WorkerHeader, r.name)
	}
	resp, err := c.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %w", verb, refusal(resp, answer))
	}
	if into != nil && err == nil {
		err = json.Unmarshal(answer, into)
	}
	if err != nil && into != nil {
		return fmt.Errorf("%s: its answer can't be read: %w", verb, err)
	}
	return nil
}

// refusal returns the error that an answer means.
func refusal(resp *http.Response, answer []byte) error {
	e := client.ErrorOf(resp, answer)
	switch resp.StatusCode {
	case http.StatusConflict, http.StatusUnauthorized, http.StatusNotFound, http.StatusGone:
		return fmt.Errorf("%w: %w", ErrLost, e)
	}
	return e
}

// backoff returns the library's exponential pause, or the Retry-After of the answer, within the two
// limits. It is shortened by up to a half at random, so that workers that failed together don't
// come back together.
func backoff(least, most time.Duration, tries int, resp *http.Response) time.Duration {
	wait := min(max(retryablehttp.DefaultBackoff(least, most, tries, resp), least), most)
	return wait - rand.N(wait/2+1)
}
