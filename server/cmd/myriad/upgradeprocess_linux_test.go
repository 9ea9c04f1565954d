package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A pid file of a supervisor names myriad init, which does not end with an upgrade.
func TestUpgradeOfInitIsThatOfItsServer(t *testing.T) {
	dir := t.TempDir()
	for name, script := range map[string]string{
		// A background command would read /dev/null.
		"init":   "trap : USR2\nsh server <&3 &\nwhile :; do wait; sleep 0.01; done\n",
		"server": "trap : USR2\necho $$\nread line\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	keep, stdin, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer keep.Close()
	cmd := exec.Command("sh", "init", "serve")
	cmd.Dir, cmd.ExtraFiles = dir, []*os.File{keep}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skip(err) // no shell
	}
	defer func() {
		_ = stdin.Close() // the server ends
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	server, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if got := serverOf(cmd.Process.Pid); got != server {
		t.Errorf("the server of process %d is %d, want %d", cmd.Process.Pid, got, server)
	}
	if got := serverOf(server); got != server {
		t.Errorf("the server of process %d is %d, want itself", server, got)
	}
}
