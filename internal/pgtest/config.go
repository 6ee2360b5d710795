package pgtest

import (
	"fmt"
	"os"
	"strconv"

	"github.com/asyncflow/asyncflow/internal/devpg"
)

// withChoices returns a server's Config with the settings of the environment:
// ASYNCFLOW_TEST_POSTGRES is the major version of the programs, ASYNCFLOW_OFFLINE forbids to
// fetch them.
func withChoices(cfg devpg.Config) (devpg.Config, error) {
	if major := os.Getenv("ASYNCFLOW_TEST_POSTGRES"); major != "" && cfg.Major == 0 {
		n, err := strconv.Atoi(major)
		if err != nil {
			return cfg, fmt.Errorf("ASYNCFLOW_TEST_POSTGRES is %q, not a major version such as 17",
				major)
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
