package httpapi

import (
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/contract"
)

// The hand-written reading of reports accepts and refuses what a generic pass over the contract,
// followed by decoding, does.
func FuzzReports(f *testing.F) {
	for _, body := range []string{`{}`, ` { } `, `null`, ` null `, `[]`, `1`, `"x"`, ``,
		`{"output":null}`, `{"output":{"a":[1,"<\u0000>"]}}`, "{\"output\":\"\xff\"}",
		`{"output":1,"output":2}`, `{"OUTPUT":1}`, `{"out\u0070ut":1}`, `{"output":1}{}`,
		`{"output":` +
			strings.Repeat("[", 129) + strings.Repeat("]", 129) + `}`,
		`{"output":"` + strings.Repeat("x", 1000) + `"}`, `{"nope":1}`, `{"":1}`, `{"output":1,}`,
		`{"error":"no"}`, `{"error":""}`, `{"error":null}`, `{"error":7}`, `{"err\u006fr":"no"}`,
		"{\"error\":\"a\xff\\u0000\\ud800\"}", `{"error":"no","error":"no"}`, `{"retryable":true}`,
		`{"error":"` + strings.Repeat("x", callbacks.MaxErrorBytes) + `"}`, `{"error":"` +
			strings.Repeat("x", callbacks.MaxErrorBytes+1) + `"}`,
		`{"error":"` + strings.Repeat("ä", callbacks.MaxErrorBytes) + `"}`, `{"error":"` +
			strings.Repeat("ä", callbacks.MaxErrorBytes+1) + `"}`,
		`{"error":"no","retryable":false}`, `{"error":"no","retryable":null}`,
		`{"error":"no","retryable":"false"}`,
		`{"error":"no","retry_after":"5s"}`, `{"error":"no","retry_after":"-5s"}`,
		`{"error":"no","retry_after":"0"}`, `{"error":"no","retry_after":".5s"}`,
		`{"error":"no","retry\u005fafter":"+0s"}`, `{"error":"no","retry_after":""}`,
		`{"error":"no","retry_after":null}`, `{"error":"no","retry_after":5}`,
		`{"error":"no","retry_after":"` + strings.Repeat("0", 40) + `1s"}`,
		`{"error":"no","retry_after":"9999999999h"}`, `{"error":"the \"retry_after\" of it"}`,
	} {
		f.Add([]byte(body))
	}
	c, err := contract.New(SurfaceAll.has)
	require.NoError(f, err)
	s := &Server{cfg: Config{MaxContext: 1000}, contract: c}
	s.app = fiber.New(fiber.Config{JSONDecoder: api.Decode})
	f.Fuzz(func(t *testing.T, body []byte) {
		for call, read := range map[string]func(*fiber.Ctx) (asyncflow.Outcome,
			error){"complete": s.readCompletion, "fail": s.readFailure} {
			var request fasthttp.RequestCtx
			request.Request.Header.SetMethod("POST")
			request.Request.SetRequestURI("/v1/callbacks/pipe.1.1/" + call)
			request.Request.Header.SetContentType(fiber.MIMEApplicationJSON)
			request.Request.SetBody(body)
			c := s.app.AcquireCtx(&request)
			want, wantErr := s.readGenerically(c, call)
			got, err := read(c)
			if err != nil {
				err = s.explain(c, err)
			}
			s.app.ReleaseCtx(c)
			// which the contract's generators don't write
			if call == "complete" && hasNullOutput(body) {
				require.NoError(t, err, "%s", body)
				require.Empty(t, got.Output)
				continue
			}
			require.Equal(t, wantErr, err, "%s: %s", call, body)
			if err == nil {
				require.Equal(t, want, got, "%s: %s", call, body)
			}
		}
	})
}

// hasNullOutput reports whether a completion is good but for an output of null.
func hasNullOutput(body []byte) bool {
	var doc api.Completion
	return api.Decode(body, &doc) == nil && string(doc.Output) == "null"
}

// readGenerically reads a report like a generated handler.
func (s *Server) readGenerically(c *fiber.Ctx, call string) (asyncflow.Outcome, error) {
	if err := s.checkBody(c); err != nil {
		return asyncflow.Outcome{}, err
	}
	if call == "complete" {
		var body api.Completion
		if err := c.BodyParser(&body); err != nil {
			return asyncflow.Outcome{}, bodyError(err.Error())
		}
		if len(body.Output) == 0 {
			return asyncflow.Outcome{Kind: asyncflow.OutcomeDone}, nil
		}
		return asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: body.Output},
			asyncflow.CheckDocument("output", body.Output, s.cfg.MaxContext)
	}
	var body api.Failure
	if err := c.BodyParser(&body); err != nil {
		return asyncflow.Outcome{}, bodyError(err.Error())
	}
	kind := asyncflow.OutcomeFailed
	if body.Retryable != nil && !*body.Retryable {
		kind = asyncflow.OutcomeRejected
	}
	return asyncflow.Outcome{Kind: kind,
		Error:      callbacks.Clean(body.Error, callbacks.MaxErrorBytes),
		RetryAfter: body.RetryAfter.Std()}, nil
}
