package pgtest

import (
	"fmt"
	"os"
	"strconv"

	"github.com/asyncflow/asyncflow/internal/devpg"
)

// withChoices returns a server's Config with what the environment says about the
// programs: ASYNCFLOW_TEST_POSTGRES their major version, ASYNCFLOW_OFFLINE whether they
// may be fetched.
func withChoices(cfg devpg.Config) (devpg.Config, error) {
	if major := os.Getenv("ASYNCFLOW_TEST_POSTGRES"); major != "" && cfg.Major == 0 {
		n, err := strconv.Atoi(major)
		if err != nil {
			return cfg, fmt.Errorf("ASYNCFLOW_TEST_POSTGRES is %q, not a major version such as 17", major)
		}
		cfg.Major = n
	}
	if offline := os.Getenv("ASYNCFLOW_OFFLINE"); offline != "" {
		off, err := strconv.ParseBool(offline)
		if err != nil {
			return cfg, fmt.Errorf("ASYNCFLOW_OFFLINE is %q, neither true nor false", offline)
		}
		cfg.Offline = off
	}
	if cfg.Progress == nil {
		cfg.Progress = os.Stderr
	}
	return cfg, nil
}
