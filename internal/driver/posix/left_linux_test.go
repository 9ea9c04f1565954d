package posix

import (
	"net"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// A socket tells that its peer has ended its side, behind bytes or without any, or has reset the
// connection, and reads nothing.
func TestHasLeft(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, leave := range map[string]func(c *net.TCPConn) error{
		"stays":     func(*net.TCPConn) error { return nil },
		"asks":      func(c *net.TCPConn) error { _, err := c.Write([]byte("GET")); return err },
		"ends":      func(c *net.TCPConn) error { return c.CloseWrite() },
		"closes":    func(c *net.TCPConn) error { _, err := c.Write([]byte("GET")); c.Close(); return err },
		"is killed": func(c *net.TCPConn) error { c.SetLinger(0); return c.Close() },
	} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		nc, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		s, err := importConn(nc)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := leave(c.(*net.TCPConn)); err != nil {
			t.Fatal(err)
		}
		want := name != "stays" && name != "asks"
		for end := time.Now().Add(10 * time.Second); driver.Leaver(s).HasLeft() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("a peer that %s has left: %v", name, !want)
				break
			}
		}
		s.Close()
		if s.HasLeft() {
			t.Error("a socket that is closed has a peer that left")
		}
	}
}
