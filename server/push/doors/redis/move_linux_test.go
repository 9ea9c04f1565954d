package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/myriad-go/myriad/handover"
	"github.com/myriad-go/myriad/resp"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/doors/redis"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
	"github.com/myriad-go/myriad/workers"
)

// A movable is a live server with its door for Redis, whose clients move.
type movable struct {
	*servertest.Live
	door *resp.Server
	addr string
}

func newMovable(t *testing.T, c push.Config) *movable {
	t.Helper()
	m := &movable{Live: servertest.NewLive(t, c)}
	m.door = redis.Listener(m.Server, m.Engine)
	pool := workers.New(workers.Config{Queue: 1 << 10})
	m.door.Workers = pool // so that no command runs any more when the test has ended
	ln, err := m.door.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.addr = ln.Addr().String()
	t.Cleanup(func() {
		m.door.Close()
		if err := pool.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return m
}

func (m *movable) program(t *testing.T) *handover.Program {
	t.Helper()
	p := &handover.Program{Engine: m.Engine}
	if err := m.AddTo(p, m.Web, "public"); err != nil {
		t.Fatal(err)
	}
	clients, err := m.door.Thawer()
	if err != nil {
		t.Fatal(err)
	}
	p.Servers["redis"] = clients
	return p
}

// moveTo moves everything. With fails the new process drops it instead.
func (m *movable) moveTo(t *testing.T, to *movable, fails bool) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		nc, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = nc.(*net.UnixConn)
	}
	given := make(chan error, 1)
	p := m.program(t)
	go func() {
		r, err := handover.Give(ends[0], p)
		if err == nil && r.Left > 0 {
			err = fmt.Errorf("%d connections are left", r.Left)
		}
		if r != nil {
			_, rest := r.MoveRest(t.Context()) // there is none
			err = errors.Join(err, rest)
		}
		given <- err
	}()
	taken, err := handover.Take(ends[1], to.program(t))
	if err != nil {
		t.Fatalf("take: %v; give: %v", err, <-given)
	}
	if fails {
		taken.Drop(fmt.Errorf("as the test wants"))
	} else if err := taken.GoOn(); err != nil {
		t.Fatal(err)
	}
	if err := <-given; (err != nil) != fails {
		t.Fatal(err)
	}
}

// What a client has told the door goes on in another process, and in the old one if the move fails.
func TestRedisClientsMove(t *testing.T) {
	const subscribed = "*3\r\n$9\r\nsubscribe\r\n$6\r\nmine:a\r\n:1\r\n"
	const expired = "-NOAUTH the token has expired: authenticate again with a new one\r\n"
	for name, tt := range map[string]struct {
		before, answer string
		publish        string // a channel, after the move
		after, want    string
		wait           time.Duration
	}{
		"a stranger": {"PUBLISH a 1", "-NOAUTH Authentication required.\r\n", "", "PUBLISH a 1",
			"-NOAUTH Authentication required.\r\n", 0},
		"the API key": {"AUTH key", "+OK\r\n", "", "PUBLISH any 1\r\nPUBSUB NUMPAT", ":0\r\n:0\r\n", 0},
		"a token": {"AUTH TOKEN", "+OK\r\n", "", "PUBLISH mine:a 1\r\nPUBLISH other:a 1",
			":0\r\n-NOPERM permission denied\r\n", 0},
		"a token that expires": {"AUTH TOKEN", "+OK\r\n", "", "PUBLISH mine:a 1", expired, time.Minute},
		"a subscription": {"AUTH TOKEN\r\nSUBSCRIBE mine:a", "+OK\r\n" + subscribed, "mine:a",
			"SUBSCRIBE mine:b\r\nUNSUBSCRIBE mine:a\r\nPING", "*3\r\n$7\r\nmessage\r\n$6\r\nmine:a\r\n$1\r\n7\r\n" +
				"*3\r\n$9\r\nsubscribe\r\n$6\r\nmine:b\r\n:2\r\n*3\r\n$11\r\nunsubscribe\r\n$6\r\nmine:a\r\n:1\r\n" +
				"*2\r\n$4\r\npong\r\n$0\r\n\r\n", 0},
		"a sharded subscription": {"AUTH TOKEN\r\nSSUBSCRIBE mine:a", "+OK\r\n" +
			"*3\r\n$10\r\nssubscribe\r\n$6\r\nmine:a\r\n:1\r\n", "mine:a", "SUNSUBSCRIBE\r\nECHO 1",
			"*3\r\n$8\r\nsmessage\r\n$6\r\nmine:a\r\n$1\r\n7\r\n*3\r\n$12\r\nsunsubscribe\r\n$6\r\nmine:a\r\n:0\r\n" +
				"$1\r\n1\r\n", 0},
		"a pattern": {"AUTH TOKEN\r\nPSUBSCRIBE mine:*", "+OK\r\n" +
			"*3\r\n$10\r\npsubscribe\r\n$6\r\nmine:*\r\n:1\r\n", "mine:a", "PUNSUBSCRIBE\r\nPUBSUB NUMPAT",
			"*4\r\n$8\r\npmessage\r\n$6\r\nmine:*\r\n$6\r\nmine:a\r\n$1\r\n7\r\n" +
				"*3\r\n$12\r\npunsubscribe\r\n$6\r\nmine:*\r\n:0\r\n:0\r\n", 0},
		"a transaction": {"AUTH key\r\nMULTI\r\nPUBLISH a 1\r\nCLIENT SETNAME joe",
			"+OK\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n", "",
			"ECHO 2\r\nEXEC\r\nCLIENT GETNAME", "+QUEUED\r\n*3\r\n:0\r\n+OK\r\n$1\r\n2\r\n$3\r\njoe\r\n", 0},
		"a broken transaction": {"AUTH key\r\nMULTI\r\nPUBLISH",
			"+OK\r\n+OK\r\n-ERR wrong number of arguments for 'publish' command\r\n", "",
			"EXEC\r\nPING", "-EXECABORT Transaction discarded because of previous errors.\r\n+PONG\r\n", 0},
		"RESET": {"AUTH key\r\nRESET", "+OK\r\n+RESET\r\n", "", "PUBLISH a 1", "-NOAUTH Authentication required.\r\n",
			0},
	} {
		for _, fails := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s fails %v", name, fails), func(t *testing.T) {
				clock := pushtest.NewClock()
				token := tokentest.Sign(t, jwt.SigningMethodHS256, []byte(tokentest.Secret), jwt.MapClaims{"sub": "ann",
					"exp": clock.Now().Add(time.Minute).Unix(), "caps": tokentest.Caps(tokentest.Cap("wildcard",
						[]string{"sub", "pub"}, "mine:*"))})
				config := push.Config{Namespaces: []push.Namespace{{Name: "mine"}, {Name: "other",
					Publish: push.PublishToken}},
					APIKey: "key", TokenSecret: tokentest.Secret, Clock: clock}
				to := newMovable(t, config)
				from := newMovable(t, config)
				p := dialRedis(t, from.addr)
				p.ask(strings.ReplaceAll(tt.before, "TOKEN", token), tt.answer)
				from.moveTo(t, to, fails)
				home, other := to, from
				if fails {
					home, other = from, to
				}
				clock.Advance(tt.wait)
				if tt.publish != "" {
					if err := home.Publish(t.Context(), tt.publish, []byte("7")); err != nil {
						t.Fatal(err)
					}
				}
				p.ask(tt.after, tt.want)
				if n := other.door.Conns(); n != 0 {
					t.Errorf("%d connections are in the other process", n)
				}
				if got := other.Hub.Counts(); got.Connections != 0 || got.Channels != 0 {
					t.Errorf("the other process has %+v", got)
				}
				p.Close()
				for end := time.Now().Add(30 * time.Second); home.door.Conns() > 0 && time.Now().Before(end); {
					time.Sleep(time.Millisecond) // its connection may hold a block until then
				}
			})
		}
	}
}
