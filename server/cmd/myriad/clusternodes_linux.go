package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// adoptNodes has the kernel make processes children of this one when their parent ends: nodes that
// have taken the place of others in an upgrade.
func adoptNodes() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl: %w", err)
	}
	return nil
}

// endNodes sends SIGTERM to the children of this process whose data are below the folder, and which
// have taken the place of others. The commands that this process has started get it by themselves:
// a second one would end them at once.
func endNodes(folder string) {
	for _, pid := range childrenOf(os.Getpid()) {
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		data := "\x00--data\x00" + filepath.Clean(folder) + string(filepath.Separator)
		if predecessorOf(pid) != 0 && strings.Contains(string(command), data) {
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
	}
}
