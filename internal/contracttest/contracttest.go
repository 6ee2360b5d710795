// Package contracttest checks in tests that servers and dispatchers keep to openapi.yaml. A test
// program calls Watch before it makes its first server.
package contracttest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/internal/openapi"
)

// Document returns the contract with its texts, which takes twice as long to read as the
// contract that servers check requests by.
var Document = sync.OnceValue(func() *openapi3.T {
	doc, err := openapi3.NewLoader().LoadFromData(asyncflow.OpenAPI)
	if err != nil {
		panic(err)
	}
	return doc
})

// Status is a status that the contract lists for a call.
type Status struct {
	Operation string
	Status    int
}

// Watch ends the process when one of its servers gives an answer, or sends an event, that the
// contract doesn't allow: no test can overlook that.
func Watch() {
	httpapi.InspectEvent = func(event []byte) {
		if err := openapi.CheckEvent(event); err != nil {
			fmt.Fprintf(os.Stderr, "an event is against openapi.yaml: %v\n%.2000s\n", err, event)
			os.Exit(1)
		}
	}
	httpapi.Inspect = func(a httpapi.Answer) {
		if err := Check(a); err != nil {
			fmt.Fprintf(os.Stderr, "%s %s is answered with %d, against openapi.yaml: %v\n%.2000s\n",
				a.Method, a.Path, a.Status, err, a.Body)
			os.Exit(1)
		}
		if a.Route != nil {
			seen.Store(Status{a.Route.Operation.OperationID, a.Status}, true)
		}
	}
}

var seen sync.Map // of Status

// Unseen returns the statuses of the contract that no server answered since Watch. It leaves out
// 500, which every call lists in case of a bug.
func Unseen() (all []Status) {
	for _, item := range Document().Paths.Map() {
		for _, op := range item.Operations() {
			for name := range op.Responses.Map() {
				status, err := strconv.Atoi(name)
				// not a number: the default
				if err != nil || status == http.StatusInternalServerError {
					continue
				}
				if _, ok := seen.Load(Status{op.OperationID, status}); !ok {
					all = append(all, Status{op.OperationID, status})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b Status) int {
		return bytes.Compare(fmt.Append(nil, a), fmt.Append(nil, b))
	})
	return all
}

// Check checks an answer against the contract: its call must list this status, with these headers
// and this body. An answer without a call must be a problem document.
func Check(a httpapi.Answer) error {
	if a.Route == nil {
		if a.Status < 400 {
			return fmt.Errorf("there is no such call")
		}
		return openapi.CheckJSON("Problem", a.Body)
	}
	r := a.Route.Operation.Responses.Value(strconv.Itoa(a.Status))
	if r == nil && (a.Status == http.StatusRequestTimeout ||
		a.Status == http.StatusTooManyRequests) {
		// any call may answer so: its body is slow, or exceeds the memory for bodies
		r = a.Route.Operation.Responses.Default()
	}
	if r == nil {
		return fmt.Errorf("%s doesn't have this status", a.Route.Operation.OperationID)
	}
	media, _, _ := strings.Cut(a.Header.Get("Content-Type"), ";")
	switch {
	case len(r.Value.Content) == 0 && len(a.Body) > 0:
		return fmt.Errorf("it has a body")
	case len(r.Value.Content) > 0 && r.Value.Content[media] == nil:
		return fmt.Errorf("its Content-Type is %q", media)
	}
	return openapi3filter.ValidateResponse(context.Background(),
		&openapi3filter.ResponseValidationInput{
			RequestValidationInput: &openapi3filter.RequestValidationInput{
				Request: &http.Request{Method: a.Method, URL: &url.URL{Path: a.Path}},
				Route:   a.Route,
			},
			Status: a.Status,
			Header: a.Header,
			Body:   io.NopCloser(bytes.NewReader(a.Body)),
			Options: &openapi3filter.Options{
				ExcludeResponseBody:   !strings.HasSuffix(media, "json"),
				IncludeResponseStatus: true,
			},
		})
}
