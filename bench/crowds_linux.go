package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// stopProcesses stops processes as a machine does that stands still for a while. goOn ends that.
func stopProcesses(pids []int) (goOn func() error, err error) {
	goOn = func() (err error) {
		for _, pid := range pids {
			err = errors.Join(err, unix.Kill(pid, unix.SIGCONT))
		}
		return err
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			return nil, errors.Join(fmt.Errorf("stopping a server: %w", err), goOn())
		}
	}
	return goOn, nil
}

// keepToOneProcessor leaves all threads of processes the first processor that this one may use.
func keepToOneProcessor(pids []int) error {
	var allowed, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return fmt.Errorf("processors: %w", err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if allowed.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	for _, pid := range pids {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid)) // the pattern is well-formed
		if err != nil {
			return err
		}
		for _, task := range tasks {
			thread, err := strconv.Atoi(filepath.Base(task))
			if err == nil {
				err = unix.SchedSetaffinity(thread, &one)
			}
			if err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
				return fmt.Errorf("processors of a server: %w", err)
			}
		}
	}
	return nil
}
