package main

import (
	"net"

	"github.com/asyncflow/asyncflow"
)

// listen opens the port of a node that a flag sets. Its error says what to do.
func listen(flag, address string) (net.Listener, error) {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return nil, usageError(asyncflow.InvalidField(flag,
			"is %q; it must look like :8080 or 127.0.0.1:8080", address))
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, &asyncflow.Error{Code: asyncflow.CodeUnavailable, Err: err,
			Message: "can't listen on " + address +
				": stop the program that uses that port, or choose another address with " + flag}
	}
	return l, nil
}
