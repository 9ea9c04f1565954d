package enginetest

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad"
)

// probesOf is the silence after which the kernel probes c's peer; 0: it does not.
func probesOf(t *testing.T, c *myriad.Conn) (silence time.Duration) {
	t.Helper()
	if err := control(t, c, func(fd int) error {
		on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE)
		if err != nil || on == 0 {
			return err
		}
		seconds, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE)
		silence = time.Duration(seconds) * time.Second
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return silence
}

// Accepted and dialled connections have the probes that Config.KeepAlive asks for.
func TestKeepAlive(t *testing.T) {
	for _, name := range []string{"epoll", "std"} {
		for _, tt := range []struct{ config, want time.Duration }{
			{0, 15 * time.Second},
			{-1, 0},
			{time.Millisecond, time.Second},
			{5 * time.Minute, 5 * time.Minute},
			{32767 * time.Second, 32767 * time.Second},
		} {
			t.Run(name+" "+tt.config.String(), func(t *testing.T) {
				e := start(t, myriad.Config{Loops: 1, Driver: name, KeepAlive: tt.config})
				c, ln := acceptOne(t, e, "tcp", "127.0.0.1:0")
				if got := probesOf(t, c); got != tt.want {
					t.Errorf("accepted: the peer is probed after %v, want %v", got, tt.want)
				}
				dialled := newProbe()
				out, err := e.Dial(t.Context(), "tcp", ln.String(), dialled)
				if err != nil {
					t.Fatal(err)
				}
				if got := probesOf(t, out); got != tt.want {
					t.Errorf("dialled: the peer is probed after %v, want %v", got, tt.want)
				}
			})
		}
	}
}
