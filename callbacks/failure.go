package callbacks

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks/internal/transport"
)

// loginError is why there was no token for an endpoint.
type loginError struct{ error }

func (e loginError) Unwrap() error { return e.error }

// policyError is why the operator's policy refuses a URL.
type policyError struct{ why string }

func (e policyError) Error() string { return e.why }

// failureCode returns the code of an attempt that got no answer.
func failureCode(err error) asyncflow.FailureCode {
	var late timeoutError
	var policy policyError
	var login loginError
	var handshake transport.HandshakeError
	var name *net.DNSError
	var network *net.OpError
	switch {
	case errors.As(err, &late) && late.dialing():
		return asyncflow.FailureNoConnection
	case errors.As(err, &late):
		return asyncflow.FailureTimeout
	case errors.Is(err, errPrivate), errors.Is(err, errRule), errors.As(err, &policy):
		return asyncflow.FailureEgress
	case errors.As(err, &login):
		return asyncflow.FailureLogin
	case errors.As(err, &handshake):
		return asyncflow.FailureTLS
	case errors.As(err, &name):
		return asyncflow.FailureDNS
	case errors.Is(err, os.ErrDeadlineExceeded): // shorter than the attempt's own time
		return asyncflow.FailureTimeout
	case errors.As(err, &network) && network.Op == "dial":
		return asyncflow.FailureNoConnection
	case network != nil && network.Op == "remote error": // an alert after the handshake
		return asyncflow.FailureTLS
	case network != nil, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.EPIPE):
		return asyncflow.FailureConnectionLost
	}
	return asyncflow.FailureOther
}
