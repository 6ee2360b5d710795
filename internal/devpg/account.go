//go:build linux || darwin

package devpg

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/asyncflow/asyncflow"
)

// account is the system user that the server runs as. The zero account is the current user.
type account struct {
	name     string
	uid, gid uint32
	switches bool // we are root and must become this user
}

// serverAccount returns the account to run the cluster in pgdata. For root that is the
// cluster's owner, so that a package that adds a user postgres later changes nothing; without a
// cluster it is postgres, or else nobody.
func serverAccount(pgdata string) (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	if info, err := os.Stat(pgdata); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
			return account{name: userName(st.Uid), uid: st.Uid, gid: st.Gid, switches: true}, nil
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			return newAccount(u)
		}
	}
	return account{}, asyncflow.Errorf(asyncflow.CodeUnavailable,
		"Postgres refuses to run as root, and there is neither a user postgres nor a user nobody; "+
			"run asyncflow as another user")
}

func newAccount(u *user.User) (account, error) {
	uid, err := strconv.ParseInt(u.Uid, 10, 64)
	if err != nil {
		return account{}, fmt.Errorf("user id of %s: %w", u.Username, err)
	}
	gid, err := strconv.ParseInt(u.Gid, 10, 64)
	if err != nil {
		return account{}, fmt.Errorf("group id of %s: %w", u.Username, err)
	}
	return account{name: u.Username, uid: uint32(uid), gid: uint32(gid), switches: true}, nil
}

func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

// credential returns the credential for a child process to run as the account, nil for the
// current user.
func (a account) credential() *syscall.Credential {
	if !a.switches {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid}
}

// takeOver gives the file or directory to the account.
func (a account) takeOver(path string) error {
	if !a.switches {
		return nil
	}
	return os.Lchown(path, int(a.uid), int(a.gid))
}

// barrier returns the outermost of dir and its parents with permission bits that don't let the
// account pass, or "" if all do.
func (a account) barrier(dir string) string {
	if up := filepath.Dir(dir); up != dir {
		if b := a.barrier(up); b != "" {
			return b
		}
	}
	info, err := os.Stat(dir)
	if err != nil || a.mayPass(info) {
		return ""
	}
	return dir
}

func (a account) mayPass(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch mode := info.Mode().Perm(); {
	case !ok || !a.switches:
		return true
	case st.Uid == a.uid:
		return mode&0o100 != 0
	case st.Gid == a.gid:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}
