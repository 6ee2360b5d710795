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
	locked *os.File // nil: the file could not be locked
}

// listenSecret is a signing secret of an endpoint, with its id: another one may have replaced it.
type listenSecret struct {
	ID     string `json:"id"`
	Secret string `json:"secret"`
}

// openListenSecrets locks the file for this process, until close, and reads it. Without one,
// nothing is known.
func openListenSecrets(g *globals) (s *listenSecrets, err error) {
	dir := g.getenv("XDG_CONFIG_HOME")
	if dir == "" {
		if dir, err = os.UserConfigDir(); err != nil {
			return nil, err
		}
	}
	s = &listenSecrets{path: filepath.Join(dir, "asyncflow", "listen.json"),
		server: g.client().URL()}
	s.lock()
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	doc, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		doc, err = []byte("{}"), nil
	}
	if err == nil && json.Unmarshal(doc, &s.known) != nil {
		err = fmt.Errorf("%s can't be read: delete it, and rotate the secrets", s.path)
	}
	if s.known == nil { // null is in the file
		s.known = map[string]map[string]listenSecret{}
	}
	return s, err
}

// lock waits until no other process holds the file. It ignores errors, such as a read-only file
// system: they don't matter to programs that only read.
func (s *listenSecrets) lock() {
	if os.MkdirAll(filepath.Dir(s.path), 0o700) != nil {
		return
	}
	file, err := os.OpenFile(s.path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil && lockFile(file) == nil {
		s.locked = file
	}
}

// close lets other processes lock the file.
func (s *listenSecrets) close() {
	if s.locked != nil {
		s.locked.Close()
		s.locked = nil
	}
}

// check returns an error if a secret could not be stored.
func (s *listenSecrets) check() error {
	if err := s.probe(); err != nil {
		return fmt.Errorf("the signing secrets of new endpoints could not be stored: %w", err)
	}
	return nil
}

// probe writes a file beside the secrets, and removes it.
func (s *listenSecrets) probe() error {
	dir := filepath.Dir(s.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	probe, err := os.CreateTemp(dir, "listen-*")
	if err != nil {
		return err
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return err
	}
	if s.locked == nil {
		return errors.New(s.path + ".lock can't be locked")
	}
	return nil
}

// secretOf returns the secret of an endpoint; "": it isn't known, or was rotated elsewhere.
func (s *listenSecrets) secretOf(e client.Endpoint) string {
	known := s.known[s.server][e.ID]
	for _, active := range e.Secrets {
		if active.ID == known.ID {
			return known.Secret
		}
	}
	return ""
}

// anySecret returns a secret that was used for the server, so that a worker needs only one; "":
// none.
func (s *listenSecrets) anySecret(endpoints []client.Endpoint) string {
	for _, e := range endpoints {
		if secret := s.secretOf(e); e.Listen && secret != "" {
			return secret
		}
	}
	return ""
}

// keep stores the secret of a new endpoint. The caller must call check before.
func (s *listenSecrets) keep(e client.Endpoint, secret string) error {
	if s.known[s.server] == nil {
		s.known[s.server] = map[string]listenSecret{}
	}
	s.known[s.server][e.ID] = listenSecret{ID: e.Secrets[0].ID, Secret: secret}
	doc, err := json.MarshalIndent(s.known, "", "  ")
	if err != nil {
		return err
	}
	fresh, err := os.CreateTemp(filepath.Dir(s.path), "listen-*") // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(fresh.Name()) // it is there only after an error, which says more
	_, err = fresh.Write(doc)
	if err = errors.Join(err, fresh.Close()); err != nil {
		return err
	}
	return os.Rename(fresh.Name(), s.path)
}
