package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/asyncflow/asyncflow/client"
)

// listenSecrets are the signing secrets that this machine knows, by server and endpoint. Their file
// is readable by its owner only.
type listenSecrets struct {
	path   string
	server string
	known  map[string]map[string]listenSecret
}

// listenSecret is a signing secret of an endpoint, with its id: another one may have replaced it.
type listenSecret struct {
	ID     string `json:"id"`
	Secret string `json:"secret"`
}

// openListenSecrets reads the file. Without one, nothing is known.
func openListenSecrets(g *globals) (*listenSecrets, error) {
	dir := g.getenv("XDG_CONFIG_HOME")
	if dir == "" {
		var err error
		if dir, err = os.UserConfigDir(); err != nil {
			return nil, err
		}
	}
	s := &listenSecrets{path: filepath.Join(dir, "asyncflow", "listen.json"), server: g.client().URL(),
		known: map[string]map[string]listenSecret{}}
	doc, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil && json.Unmarshal(doc, &s.known) != nil {
		err = fmt.Errorf("%s can't be read: delete it, and rotate the secrets", s.path)
	}
	return s, err
}

// of returns the secret of an endpoint; "": it isn't known, or was rotated elsewhere.
func (s *listenSecrets) of(e client.Endpoint) string {
	known := s.known[s.server][e.ID]
	for _, active := range e.Secrets {
		if active.ID == known.ID {
			return known.Secret
		}
	}
	return ""
}

// any returns a secret that was used for the server, so that a worker needs only one; "": none.
func (s *listenSecrets) any(endpoints []client.Endpoint) string {
	for _, e := range endpoints {
		if secret := s.of(e); e.Listen && secret != "" {
			return secret
		}
	}
	return ""
}

// keep stores the secret of a new endpoint.
func (s *listenSecrets) keep(e client.Endpoint, secret string) error {
	if s.known[s.server] == nil {
		s.known[s.server] = map[string]listenSecret{}
	}
	s.known[s.server][e.ID] = listenSecret{ID: e.Secrets[0].ID, Secret: secret}
	doc, err := json.MarshalIndent(s.known, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(s.path), 0o700)
	}
	if err != nil {
		return err
	}
	fresh, err := os.CreateTemp(filepath.Dir(s.path), "listen-*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = fresh.Write(doc)
	if err = errors.Join(err, fresh.Close()); err == nil {
		err = os.Rename(fresh.Name(), s.path)
	}
	return err
}
