package callbacks

import (
	"errors"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks/internal/transport"
	"github.com/asyncflow/asyncflow/internal/signing"
)

// sign appends the headers that sign a request, with one signature for each active secret.
func (o *opened) sign(
	h transport.Headers, e *asyncflow.Endpoint, id string, at time.Time, body []byte,
) (transport.Headers, error) {
	var few [asyncflow.MaxSecrets]signing.Signer
	signers := few[:0]
	for i, secret := range e.Secrets {
		if !secret.Active(at) {
			continue
		}
		if err := o.signers[i].err; err != nil {
			return nil, err
		}
		signers = append(signers, o.signers[i].Signer)
	}
	if len(signers) == 0 {
		return nil, errors.New("the endpoint has no secret that signs")
	}
	signed, err := signing.Headers(id, at, body, signers)
	for _, one := range signed {
		h = append(h, transport.Header(one))
	}
	return h, err
}
