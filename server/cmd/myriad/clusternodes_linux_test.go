package main

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// A node that has been upgraded is no process that cluster dev has started itself.
func TestEndNodesOfAFolder(t *testing.T) {
	ours, others := t.TempDir(), t.TempDir()
	start := func(folder string, environ ...string) *exec.Cmd {
		cmd := exec.Command("sh", "-c", "echo; read line", "serve", "--data", filepath.Join(folder, "n1"))
		cmd.Env = environ
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Skip(err) // no shell
		}
		t.Cleanup(func() { _ = stdin.Close() })
		if _, err := out.Read(make([]byte, 1)); err != nil { // from now on it has its arguments
			t.Fatal(err)
		}
		return cmd
	}
	upgraded := predecessorVariable + "=1"
	node, other, first := start(ours, upgraded), start(others, upgraded), start(ours, "A=1")
	endNodes(ours)
	_ = node.Wait()
	if s := node.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() || s.Signal() != syscall.SIGTERM {
		t.Errorf("the node has ended by %v, want SIGTERM", node.ProcessState)
	}
	for _, cmd := range []*exec.Cmd{other, first} {
		if !isRunning(cmd.Process.Pid) {
			t.Errorf("%v has ended, too", cmd)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}
