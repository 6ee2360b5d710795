package transport

import (
	"errors"
	"fmt"
	"net/http"
)

// RoundTrip lets owners of an http.Request send it by this transport, such as package
// oauth2. It must be a POST of a known length. The answer is returned as soon as its head is
// there; the context also ends the reading of its body.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	x, err := t.exchangeOf(req)
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	return x.RoundTrip(req)
}

// Do sends an http.Request, as Post sends a Request.
func (t *Transport) Do(req *http.Request, maxAnswer int) (Answer, error) {
	client := http.Client{Transport: t, CheckRedirect: NoRedirects}
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	return readAnswer(resp, maxAnswer), nil
}

func (t *Transport) exchangeOf(req *http.Request) (*exchange, error) {
	switch {
	case req.Method != http.MethodPost:
		return nil, fmt.Errorf("the method is %s; this transport sends POST only", req.Method)
	case req.ContentLength < 0:
		return nil, errors.New("the length of the request's body isn't known")
	}
	given := body{Reader: http.NoBody, length: req.ContentLength}
	if req.Body != nil {
		given.Reader, given.closer = req.Body, req.Body
	}
	r := Request{URL: req.URL}
	for name, values := range req.Header {
		for _, value := range values {
			r.Headers = append(r.Headers, Header{Name: name, Value: value})
		}
	}
	return t.newExchange(r, given)
}
