package redis

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/resp"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/server/push/internal/snapshot"
)

// frozenClient returns a door of a frozen server, a connection of it, and the state of a client who
// has subscribed to channels and patterns and has begun a transaction.
func frozenClient(t testing.TB) (d *Door, c *resp.Conn, state []byte) {
	t.Helper()
	e, err := myriad.Start(myriad.Config{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	d = New()
	s, err := push.New(push.Config{Doors: []hub.Door{d}, APIKey: "key"})
	if err != nil {
		t.Fatal(err)
	}
	server := Listener(s, e)
	opened := make(chan *resp.Conn, 1)
	server.OnOpen = func(c *resp.Conn) { opened <- c }
	ln, err := server.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c = <-opened
	t.Cleanup(func() {
		s.Thaw()
		nc.Close()
		for _, end := range []func(context.Context) error{server.Shutdown, s.Shutdown, e.Shutdown} {
			if err := end(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	fmt.Fprint(nc, "AUTH key\r\nSUBSCRIBE a\r\nSSUBSCRIBE b\r\nPSUBSCRIBE n*\r\n")
	answers := "+OK\r\n" + string(confirmation(resp.RESP2, "subscribe", []byte("a"), 1)) +
		string(confirmation(resp.RESP2, "ssubscribe", []byte("b"), 1)) +
		string(confirmation(resp.RESP2, "psubscribe", []byte("n*"), 2))
	if _, err := io.ReadFull(nc, make([]byte, len(answers))); err != nil {
		t.Fatal(err)
	}
	clientOf(c).transaction = &transaction{queued: [][][]byte{{[]byte("ECHO"), []byte("1")}}}
	if err := s.Freeze(context.Background()); err != nil {
		t.Fatal(err)
	}
	if state, err = d.freeze(c, nil); err != nil {
		t.Fatal(err)
	}
	return d, c, state
}

// again has the connection go on with a client's state, and returns what it writes of that.
func again(d *Door, c *resp.Conn, state []byte) (written []byte, err error) {
	d.moved(c) // the client that there was
	if err := d.thaw(c, state); err != nil {
		return nil, err
	}
	return d.freeze(c, nil)
}

// The state of a client is that of today's form, and is read in the same way by later versions, or
// refused.
func TestClientStateOfVersions(t *testing.T) {
	d, c, _ := frozenClient(t)
	text, err := os.ReadFile("testdata/client-1.hex")
	if err != nil {
		t.Fatal(err)
	}
	state, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if written, err := again(d, c, state); err != nil || !bytes.Equal(written, state) {
		t.Errorf("%q becomes %q, %v", state, written, err)
	}
	k := clientOf(c)
	if k.count(false) != 2 || k.count(true) != 1 || !k.publisher || d.patterns.matching("news") != 1 ||
		len(k.transaction.queued) != 1 {
		t.Errorf("%+v, and %d patterns", k, d.patterns.count())
	}
	for n := range state {
		if _, err := again(d, c, state[:n]); !snapshot.IsMalformed(err) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
	d.moved(c)
}

// Any state is refused, or the client that has it writes one that is read again.
func FuzzThaw(f *testing.F) {
	d, c, state := frozenClient(f)
	f.Add(state)
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, state []byte) {
		written, err := again(d, c, state)
		if err != nil {
			d.end(clientOf(c))
			if n := d.patterns.count(); n != 0 {
				t.Errorf("%d patterns are left", n)
			}
			return
		}
		if twice, err := again(d, c, written); err != nil || !bytes.Equal(twice, written) {
			t.Errorf("%q became %q, and then %q, %v", state, written, twice, err)
		}
	})
}
