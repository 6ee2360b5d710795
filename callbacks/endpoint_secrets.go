package callbacks

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/signing"
)

// SigningSecret seals a signing secret for an endpoint.
func (k *Keys) SigningSecret(
	secret, endpoint string, now time.Time,
) (asyncflow.SigningSecret, error) {
	s, err := signing.NewSigner(secret)
	if err != nil {
		return asyncflow.SigningSecret{}, err
	}
	id, err := uuid.NewV7()
	return asyncflow.SigningSecret{
		ID:        id.String(),
		Kind:      s.Kind(),
		Sealed:    k.Seal(secret, endpoint),
		PublicKey: s.PublicKey(),
		CreatedAt: now,
	}, err
}

// SealOutbound seals an endpoint's settings. It returns nil for empty settings.
func (k *Keys) SealOutbound(o asyncflow.Outbound, endpoint string) ([]byte, error) {
	o = o.Normal()
	if o.Zero() {
		return nil, nil
	}
	doc, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("SealOutbound: %w", err)
	}
	return k.Seal(string(doc), outboundOf(endpoint)), nil
}

// OpenOutbound returns an endpoint's settings.
func (k *Keys) OpenOutbound(e asyncflow.Endpoint) (o asyncflow.Outbound, err error) {
	if len(e.Outbound) == 0 {
		return o, nil
	}
	doc, err := k.Open(e.Outbound, outboundOf(e.ID))
	if err != nil {
		return o, err
	}
	if json.Unmarshal([]byte(doc), &o) != nil { // the error would quote the settings
		return o, fmt.Errorf("OpenOutbound: the settings of endpoint %s can't be read", e.ID)
	}
	return o, nil
}

// outboundOf is the context that an endpoint's settings are sealed with. A sealed signing secret
// doesn't open in it.
func outboundOf(endpoint string) string { return endpoint + " outbound" }

// Reseal seals all secrets and settings of an endpoint again, with the first node secret.
func (k *Keys) Reseal(e *asyncflow.Endpoint) error {
	for i, s := range e.Secrets {
		secret, err := k.Open(s.Sealed, e.ID)
		if err != nil {
			return err
		}
		e.Secrets[i].Sealed = k.Seal(secret, e.ID)
	}
	o, err := k.OpenOutbound(*e)
	if err != nil {
		return err
	}
	e.Outbound, err = k.SealOutbound(o, e.ID)
	return err
}

// CheckOpen returns an error if a secret or the settings of an endpoint can't be opened.
func (k *Keys) CheckOpen(e asyncflow.Endpoint) error {
	for _, s := range e.Secrets {
		if _, err := k.Open(s.Sealed, e.ID); err != nil {
			return err
		}
	}
	_, err := k.OpenOutbound(e)
	return err
}
