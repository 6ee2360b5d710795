package rig

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"

	"github.com/asyncflow/asyncflow/bench/internal/worker"
)

// StartWorker starts this program as a worker, and reads its address.
func (r *Rig) StartWorker(context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	output, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer output.Close()
	cmd := exec.Command(self, worker.Mode)
	cmd.Stdout = w
	if _, err = cmd.StdinPipe(); err != nil { // the worker ends when this process does
		return err
	}
	r.worker, err = StartProcess("the worker", cmd)
	_ = w.Close()
	if err != nil {
		return err
	}
	r.stops = append(r.stops, r.worker.stop)
	address, err := bufio.NewReader(output).ReadString('\n')
	r.Worker = &Client{Base: "http://" + strings.TrimSpace(address), HTTP: newHTTPClient()}
	return err
}

// WorkerCounts returns how many deliveries the worker received.
func (r *Rig) WorkerCounts(ctx context.Context) (c worker.Counts, err error) {
	return c, r.Worker.get(ctx, worker.CountPath, &c)
}
