//go:build linux

package clustertest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// resize makes the disk that large.
func resize(t *testing.T, dir string, size uint64) {
	t.Helper()
	if out, err := mount(dir, size, "remount"); err != nil {
		t.Fatalf("another size: %v: %s", err, out)
	}
}

// fill leaves no room on the disk, and returns the file that took it. The disk shrinks first, to
// more than the node can write meanwhile, so that the file is small.
func fill(t *testing.T, dir string) (filler string) {
	t.Helper()
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		t.Fatal(err)
	}
	resize(t, dir, (disk.Blocks-disk.Bfree)*uint64(disk.Bsize)+64<<20)
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for zeros := make([]byte, 1<<20); err == nil; {
		_, err = f.Write(zeros)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return f.Name()
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
	filler := fill(t, disk)
	last.awaitSick()
	time.Sleep(5 * time.Second)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
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
