package enginetest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/leaktest"
)

func tempFile(t testing.TB, content []byte) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// writeAll writes p once there is room: under a layer that is after the files before it.
func writeAll(t testing.TB, c *myriad.Conn, p []byte) {
	taken(t, func() error { _, err := c.Write(p); return err })
}

// taken calls write until there is room for it.
func taken(t testing.TB, write func() error) {
	eventually(t, "Write is taken", func() bool {
		err := write()
		if err != nil && !errors.Is(err, myriad.ErrFull) {
			t.Fatalf("Write: %v", err)
		}
		return err == nil
	})
}

func TestFilesKeepTheirPlace(t *testing.T) {
	t.Parallel()
	eachLayer(t, func(t *testing.T, s setting) {
		for _, size := range []int{0, 1, 1000, 64 << 10, 64<<10 + 1, 3_000_000} {
			content := pattern(size + 20)
			f := tempFile(t, content)
			h := newProbe()
			nc := s.one(t, myriad.Config{}, h)
			c := await(t, "Opened", h.opens)
			writeAll(t, c, []byte("head"))
			if err := c.WriteFile(f, 10, int64(size)); err != nil {
				t.Fatal(err)
			}
			go func() {
				taken(t, func() error { return c.WriteFile(f, 10, int64(size)) })
				f.Close()
				writeAll(t, c, []byte("tail"))
				c.Close()
			}()
			body := content[10 : 10+size]
			expectEnd(t, nc, bytes.Join([][]byte{[]byte("head"), body, body, []byte("tail")}, nil))
			nc.Close()
			if err := await(t, "Closed", h.closes); err != nil {
				t.Errorf("size %d: Closed(%v)", size, err)
			}
		}
	})
}

func TestFileInOneCallback(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		f := tempFile(t, pattern(100_000))
		h := newProbe()
		h.received = func(c *myriad.Conn, _ []byte) {
			c.Write([]byte("head"))
			if err := c.WriteFile(f, 0, 100_000); err != nil {
				t.Error(err)
			}
			_, err := c.Write([]byte("tail"))
			if want := map[bool]error{true: myriad.ErrFull}[s.layered]; err != want {
				t.Errorf("Write behind a file: %v, want %v", err, want)
			}
			c.Close()
		}
		nc := s.one(t, myriad.Config{}, h)
		send(t, nc, []byte("x"))
		want := append([]byte("head"), pattern(100_000)...)
		if !s.layered {
			want = append(want, "tail"...)
		}
		expectEnd(t, nc, want)
	})
}

// A peer that does not read holds few descriptors: those of a file that is being sent, and of one
// that waits.
func TestTooManyFiles(t *testing.T) {
	// more than the kernel takes, so that the first stays, however long the next is in coming
	content := pattern(16 << 20)
	f := tempFile(t, content)
	eachLayer(t, func(t *testing.T, s setting) {
		h := newProbe()
		drained := make(chan struct{}, 10)
		h.drained = func(*myriad.Conn) { drained <- struct{}{} }
		nc := s.one(t, myriad.Config{}, h)
		c := await(t, "Opened", h.opens)
		n := 0
		for ; n < 100; n++ {
			if err := c.WriteFile(f, 0, int64(len(content))); err == myriad.ErrFull {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if n < 1 || n > 2 {
			t.Fatalf("%d files were taken", n)
		}
		for range n {
			expect(t, nc, content)
		}
		await(t, "Drained", drained)
		c.Close()
		expectEnd(t, nc, nil)
	})
}

func TestFileShorterThanPromised(t *testing.T) {
	t.Parallel()
	eachLayer(t, func(t *testing.T, s setting) {
		f := tempFile(t, pattern(1000))
		h := newProbe()
		nc := s.one(t, myriad.Config{}, h)
		c := await(t, "Opened", h.opens)
		if err := c.WriteFile(f, 0, 1001); err != nil {
			t.Fatal(err)
		}
		if err := await(t, "Closed", h.closes); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("Closed(%v), want ErrUnexpectedEOF", err)
		}
		nc.Close()
		for _, bad := range [][2]int64{{-1, 1}, {0, -1}} {
			if err := c.WriteFile(f, bad[0], bad[1]); err == nil {
				t.Errorf("WriteFile(%d, %d) was taken", bad[0], bad[1])
			}
		}
	})
}

// Files that wait when the conn breaks are closed: the leak check of TestMain counts descriptors.
func TestFilesOfABrokenConn(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		f := tempFile(t, pattern(8_000_000))
		h := newProbe()
		nc := s.one(t, myriad.Config{}, h)
		c := await(t, "Opened", h.opens)
		before := leaktest.OpenFiles()
		var err error
		for err == nil {
			err = c.WriteFile(f, 0, 8_000_000)
		}
		if err != myriad.ErrFull {
			t.Fatal(err)
		}
		reset(nc)
		await(t, "Closed", h.closes)
		eventually(t, "the files are closed", func() bool { return leaktest.OpenFiles() <= before })
		if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Write: %v", err)
		}
	})
}
