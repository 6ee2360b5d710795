package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
)

// keyFiles are the files of a signing key: the key itself, the next one during a rotation, and
// the public keys that nodes accept.
type keyFiles struct {
	File   string `arg:"" type:"path"`
	Public string `placeholder:"FILE" type:"path"`
}

func (k keyFiles) next() string { return k.File + ".next" }

func (k keyFiles) public() string {
	if k.Public != "" {
		return k.Public
	}
	return k.File + ".pub"
}

// readKeys reads the keys of a file, which must exist.
func readKeys(name string) (auth.KeySet, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return auth.KeySet{}, asyncflow.Errorf(asyncflow.CodeInvalid, "%v", err)
	}
	keys, err := auth.ReadKeys(text)
	if err != nil {
		return auth.KeySet{}, asyncflow.Errorf(asyncflow.CodeInvalid, "%s: %v", name, err)
	}
	return keys, nil
}

// both reads the public half of the private key, and the public keys, which must contain it.
func (k keyFiles) both() (private, public auth.KeySet, err error) {
	if private, err = readKeys(k.File); err != nil {
		return private, public, err
	}
	if public, err = readKeys(k.public()); err != nil {
		return private, public, err
	}
	if !public.Has(private) {
		err = asyncflow.Errorf(asyncflow.CodeInvalid,
			"%s doesn't have the key of %s: they don't belong together", k.public(), k.File)
	}
	return private, public, err
}

const rotation = `
Rotating a key takes three steps, so that no valid token is refused:

    asyncflow keys rotate jwt.pem      # creates the next key; jwt.pem.pub has both public keys
    # give jwt.pem.pub to every node; within 5 s each logs "the keys of an issuer are loaded"
    asyncflow keys activate jwt.pem    # signs tokens with the next key from now on
    # wait until the last token of the old key has expired
    asyncflow keys retire jwt.pem      # leaves only the new public key in jwt.pem.pub
    # give jwt.pem.pub to every node again`

type keysRotateCmd struct {
	keyFiles
	Kid string `placeholder:"ID"`
}

func (c *keysRotateCmd) Help() string {
	return `Creates a key of the same algorithm in FILE.next, and adds its public half to the public
keys. The new key signs nothing yet. After an interruption, run the same command again to
continue.
` + rotation
}

// Run creates the next key, or continues with the one that an earlier run created, and
// publishes it.
func (c *keysRotateCmd) Run(g *globals) error {
	private, public, err := c.both()
	if err != nil {
		return usageError(err)
	}
	next, err := readKeys(c.next())
	if _, statErr := os.Lstat(c.next()); errors.Is(statErr, fs.ErrNotExist) {
		if next, err = c.makeNext(private, public); err != nil {
			return usageError(err)
		}
	} else if err != nil {
		return usageError(err)
	} else if public.Has(next) {
		return &codedError{exitFailed,
			fmt.Errorf("%s exists already: continue with asyncflow keys activate", c.next())}
	}
	if public, err = public.With(next); err != nil {
		return usageError(fmt.Errorf("the next key: %w", err))
	}
	if err := writeKeys(c.public(), public); err != nil {
		return err
	}
	return printNote(g,
		"%s has the next key, %s. Give it to every node, then run: asyncflow keys activate %s\n",
		c.public(), next.List()[0].ID, c.File)
}

func (c *keysRotateCmd) makeNext(private, public auth.KeySet) (auth.KeySet, error) {
	text, half, err := auth.GenerateKey(private.List()[0].Algorithm, c.Kid)
	if err != nil {
		return auth.KeySet{}, err
	}
	next, err := auth.ReadKeys(half)
	if err != nil {
		return auth.KeySet{}, err
	}
	if _, err = public.With(next); err != nil {
		return auth.KeySet{}, err
	}
	return next, createFile(c.next(), text, 0o600)
}

type keysActivateCmd struct{ keyFiles }

func (c *keysActivateCmd) Help() string {
	return `Replaces FILE by FILE.next. The old private key is gone; its tokens stay valid until
they expire.
` + rotation
}

// Run replaces the key in use by the next one.
func (c *keysActivateCmd) Run(g *globals) error {
	next, err := readKeys(c.next())
	if err != nil {
		return usageError(fmt.Errorf("there is no next key: begin with asyncflow keys rotate: %w",
			err))
	}
	_, public, err := c.both()
	if err != nil {
		return usageError(err)
	}
	if !public.Has(next) { // otherwise nodes would refuse its tokens
		return usageError(asyncflow.Errorf(asyncflow.CodeInvalid,
			"%s doesn't have the next key: run asyncflow keys rotate again", c.public()))
	}
	if err := os.Rename(c.next(), c.File); err != nil {
		return err
	}
	return printNote(g, "%s is now %s. When the old tokens have expired, run: asyncflow keys "+
		"retire %s\n",
		c.File, next.List()[0].ID, c.File)
}

type keysRetireCmd struct{ keyFiles }

func (c *keysRetireCmd) Help() string {
	return `Removes all public keys but that of FILE. A node refuses tokens of the removed keys,
including those that it has verified before, within 5 s after it has the new file. After a leak
of a private key, this is the step that counts: don't wait for anything.
` + rotation
}

// Run removes every public key but that of the private key.
func (c *keysRetireCmd) Run(g *globals) error {
	private, public, err := c.both()
	if err != nil {
		return usageError(err)
	}
	if _, err := os.Lstat(c.next()); err == nil {
		return usageError(asyncflow.Errorf(asyncflow.CodeInvalid,
			"%s is waiting: run asyncflow keys activate first, or remove it", c.next()))
	}
	if err := writeKeys(c.public(), private); err != nil {
		return err
	}
	return printNote(g, "%s now has only the key %s; %d were removed. Give it to every node\n",
		c.public(), private.List()[0].ID, len(public.List())-1)
}

// writeKeys replaces the public keys in a file atomically: nodes may read it at any time.
func writeKeys(name string, keys auth.KeySet) error {
	text, err := keys.PEM()
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(text)
	err = errors.Join(err, temp.Chmod(0o644), temp.Sync(), temp.Close())
	if err != nil {
		return err
	}
	return os.Rename(temp.Name(), name)
}

// printNote prints what was done and what comes next; with -o json, not on standard output.
func printNote(g *globals, format string, args ...any) error {
	to := g.stdout
	if g.output == "json" {
		to = g.stderr
	}
	_, err := fmt.Fprintf(to, format, args...)
	return err
}
