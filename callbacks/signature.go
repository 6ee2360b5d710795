package callbacks

import (
	"errors"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/signing"
)

// sign adds the headers of a request to an endpoint that sign it: a signature by each of its
// secrets that is active.
func (s *Sender) sign(h headers, e *asyncflow.Endpoint, id string, at time.Time, body []byte) (headers, error) {
	var few [asyncflow.MaxSecrets]signing.Signer
	signers := few[:0]
	for _, secret := range e.Secrets {
		if !secret.Active(at) {
			continue
		}
		signer, err := s.signerFor(e.ID, secret)
		if err != nil {
			return nil, err
		}
		signers = append(signers, signer)
	}
	if len(signers) == 0 {
		return nil, errors.New("the endpoint has no secret that signs")
	}
	signed, err := signing.Headers(id, at, body, signers)
	return append(h, signed[:]...), err
}

// signerFor returns the signer of a secret. It is kept: opening a secret costs
// about as much as signing with it.
func (s *Sender) signerFor(endpoint string, secret asyncflow.SigningSecret) (signing.Signer, error) {
	if known, ok := keptOf(&s.signers, secret.Sealed); ok {
		return known, nil
	}
	opened, err := s.keys.Open(secret.Sealed, endpoint)
	if err != nil {
		return nil, err
	}
	made, err := signing.NewSigner(opened)
	if err != nil {
		return nil, err
	}
	s.signers.put(string(secret.Sealed), made)
	return made, nil
}
