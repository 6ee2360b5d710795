package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
)

// keysCmd groups the commands for the keys that sign tokens, and for the node secret.
type keysCmd struct {
	Generate keysGenerateCmd `cmd:"" help:"Create a private key, and a public one for nodes."`
	Rotate   keysRotateCmd   `cmd:"" help:"Begin a rotation: create and publish the next key."`
	Activate keysActivateCmd `cmd:"" help:"Go on with a rotation: sign with the next key."`
	Retire   keysRetireCmd   `cmd:"" help:"End a rotation: remove the old public keys."`
	Show     keysShowCmd     `cmd:"" help:"List the keys in a file."`
	JWKS     keysJWKSCmd     `cmd:"" name:"jwks" help:"Print the public keys in a file as a JWK Set."`
	Status   keysStatusCmd   `cmd:"" help:"Count what is sealed, and with which secret."`
	Reseal   keysResealCmd   `cmd:"" help:"Seal everything with ASYNCFLOW_SECRET."`
}

type keysGenerateCmd struct {
	Alg string `default:"EdDSA" enum:"EdDSA,ES256,RS256"`
	Out string `required:"" placeholder:"FILE" type:"path"`
	Kid string `placeholder:"ID"`
}

func (c *keysGenerateCmd) Help() string {
	return `Existing files are not overwritten. Keep FILE where tokens are created, and give
FILE.pub to every node.

Examples:

    asyncflow keys generate --out jwt.pem
    export ASYNCFLOW_JWT_PRIVATE_KEY_FILE=jwt.pem        # for asyncflow token create
    export ASYNCFLOW_JWT_PUBLIC_KEYS_FILE=jwt.pem.pub    # for asyncflow serve
    asyncflow keys generate --alg RS256 --kid 2026-11 --out keys/rs256.pem`
}

// Run creates the key.
func (c *keysGenerateCmd) Run(g *globals) error {
	private, public, err := auth.GenerateKey(c.Alg, c.Kid)
	if err != nil {
		return usageError(err)
	}
	if _, err := os.Lstat(c.Out + ".pub"); err == nil {
		return usageError(asyncflow.InvalidField("--out", "would overwrite %s.pub", c.Out))
	}
	if err := createFile(c.Out, private, 0o600); err != nil {
		return usageError(err)
	}
	if err := createFile(c.Out+".pub", public, 0o644); err != nil {
		_ = os.Remove(c.Out) // it is useless without its public half
		return err
	}
	return showKeys(g, public)
}

// createFile writes a file that must not exist yet.
func createFile(name string, text []byte, mode os.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, os.ErrExist) {
		return asyncflow.Errorf(asyncflow.CodeInvalid, "%s exists already, and is not overwritten",
			name)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = os.Remove(name)
	}
	return err
}

type keysShowCmd struct {
	File string `arg:"" type:"path"`
}

func (c *keysShowCmd) Help() string {
	return `Shows the id by which tokens name each key (kid), its algorithm and its thumbprint, and
nothing secret.

Example:

    asyncflow keys show jwt.pem.pub`
}

// Run lists the keys.
func (c *keysShowCmd) Run(g *globals) error {
	text, err := readInput(c.File)
	if err != nil {
		return usageError(err)
	}
	return showKeys(g, text)
}

// keyRow is a key as keys show prints it.
type keyRow struct {
	Kid        string `json:"kid"`
	Alg        string `json:"alg"`
	Thumbprint string `json:"thumbprint"`
}

func showKeys(g *globals, text []byte) error {
	keys, err := auth.ReadKeys(text)
	if err != nil {
		return usageError(fmt.Errorf("the keys can't be read: %w", err))
	}
	var list []keyRow
	var rows [][]string
	for _, k := range keys.List() {
		list = append(list, keyRow{k.ID, k.Algorithm, k.Thumbprint})
		rows = append(rows, []string{k.ID, k.Algorithm, k.Thumbprint})
	}
	if g.output == "json" {
		return g.printJSON(asList(list, ""))
	}
	return g.printTable("KID ALG THUMBPRINT", rows)
}

type keysJWKSCmd struct {
	File string `arg:"" type:"path"`
}

func (c *keysJWKSCmd) Help() string {
	return `This is for other programs that verify the same tokens. Of a private key, only the
public half is printed.

Example:

    asyncflow keys jwks jwt.pem.pub > jwks.json`
}

// Run prints the set.
func (c *keysJWKSCmd) Run(g *globals) error {
	text, err := readInput(c.File)
	if err != nil {
		return usageError(err)
	}
	keys, err := auth.ReadKeys(text)
	if err != nil {
		return usageError(fmt.Errorf("the keys can't be read: %w", err))
	}
	set, err := keys.JWKS()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(g.stdout, "%s\n", bytes.TrimSpace(set))
	return err
}
