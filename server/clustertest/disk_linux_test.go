//go:build linux

package clustertest

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/soak"
)

// roomy is more than a node sets aside for its logs.
const roomy = 8 << 30

// ownDisk mounts a file system for a node's data. Only root may, so the test is skipped for others.
// It takes no more memory than what is stored.
func ownDisk(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if out, err := mount(dir, roomy); err != nil {
		t.Skipf("a disk for a node: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

func mount(dir string, size uint64, options ...string) (out []byte, err error) {
	set := strings.Join(append(options, fmt.Sprintf("size=%d", size)), ",")
	return exec.Command("mount", "-t", "tmpfs", "-o", set, "tmpfs", dir).CombinedOutput()
}

// resize makes the disk that large, or leaves it just a page more than it has stored.
func resize(t *testing.T, dir string, size uint64) {
	t.Helper()
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		t.Fatal(err)
	}
	used := (disk.Blocks - disk.Bfree + 1) * uint64(disk.Bsize)
	if out, err := mount(dir, max(size, used), "remount"); err != nil {
		t.Fatalf("another size: %v: %s", err, out)
	}
}

// A node's disk is full. The node says so, and stores nothing; the others go on. It starts again
// when there is room.
func TestDiskFull(t *testing.T) {
	soak.Only(t)
	disk := ownDisk(t)
	nodes := formed(t, history, "--ping-interval", pings)
	last := nodes[2]
	last.moveTo(disk)
	begin(t, nodes)
	l := start(t, nodes, 1000, 3000, 2000)
	time.Sleep(5 * time.Second)
	resize(t, disk, 0)
	last.awaitSick()
	time.Sleep(5 * time.Second)
	resize(t, disk, roomy)
	last.signal(syscall.SIGTERM)
	last.wait()
	last.start()
	for _, n := range nodes {
		n.awaitHealthy()
	}
	time.Sleep(5 * time.Second)
	l.finish().wantAll(t)
}
