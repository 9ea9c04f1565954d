package clients

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// A redisConn is a client of Redis that writes and reads raw bytes.
type redisConn struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func dialRedis(t *testing.T, addr string) *redisConn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(patience))
	return &redisConn{t, nc, bufio.NewReader(nc)}
}

// ask sends lines, and reads the answer.
func (c *redisConn) ask(lines, want string) {
	c.t.Helper()
	io.WriteString(c, lines)
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c.r, got); string(got[:n]) != want {
		c.t.Fatalf("%q is answered %q (%v), want %q", lines, got[:n], err, want)
	}
}

// upgradedRedis starts a server with a door for Redis.
func upgradedRedis(t *testing.T) (u *upgraded, addr string) {
	t.Helper()
	u = &upgraded{server: serve(t, "--redis-listen", "127.0.0.1:0")}
	u.pid = u.cmd.Process.Pid
	t.Cleanup(func() { _ = syscall.Kill(u.pid, syscall.SIGKILL) })
	return u, u.redis()
}

// Clients of Redis notice nothing of several upgrades of the real binary: subscribers in both
// protocols and redis-cli, a client that has a name and sends commands, and one with a transaction.
func TestUpgradeRedis(t *testing.T) {
	u, addr := upgradedRedis(t)
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	second, third := dialRedis(t, addr), dialRedis(t, addr)
	second.ask("SUBSCRIBE news\r\nPSUBSCRIBE n?ws\r\n", "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n"+
		"*3\r\n$10\r\npsubscribe\r\n$4\r\nn?ws\r\n:2\r\n")
	third.ask("HELLO 3\r\n", "%7\r\n")
	for line := ""; line != "*0\r\n"; {
		if line, err = third.r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	third.ask("SUBSCRIBE news\r\n", ">3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n")
	writer, queue := dialRedis(t, addr), dialRedis(t, addr)
	writer.ask("CLIENT SETNAME writer\r\n", "+OK\r\n")
	queue.ask("MULTI\r\n", "+OK\r\n")
	subscribers := 3
	var cli *process // nil if it is not installed
	if path, err := exec.LookPath("redis-cli"); err == nil {
		cli = start(t, nil, path, "-h", host, "-p", port, "SUBSCRIBE", "news")
		cli.want(`^subscribe$`)
		cli.want(`^1$`)
		subscribers++
	}
	for i := range 4 {
		if i > 0 {
			u.upgrade()
		}
		n := strconv.Itoa(i)
		queue.ask("ECHO "+n+"\r\n", "+QUEUED\r\n")
		writer.ask("PUBLISH news "+n+"\r\nCLIENT GETNAME\r\n", fmt.Sprintf(":%d\r\n$6\r\nwriter\r\n", subscribers))
		message := "$7\r\nmessage\r\n$4\r\nnews\r\n$1\r\n" + n + "\r\n"
		second.ask("", "*3\r\n"+message+"*4\r\n$8\r\npmessage\r\n$4\r\nn?ws\r\n$4\r\nnews\r\n$1\r\n"+n+"\r\n")
		third.ask("", ">3\r\n"+message)
		if cli != nil {
			cli.want("^" + n + "$")
		}
	}
	queue.ask("EXEC\r\n", "*4\r\n$1\r\n0\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n")
	second.ask("UNSUBSCRIBE\r\nPUNSUBSCRIBE\r\nECHO x\r\n", "*3\r\n$11\r\nunsubscribe\r\n$4\r\nnews\r\n:1\r\n"+
		"*3\r\n$12\r\npunsubscribe\r\n$4\r\nn?ws\r\n:0\r\n$1\r\nx\r\n")
	u.never(` left=[1-9]`)
}

// Client libraries for Redis keep their connections over several upgrades of the real binary.
func TestUpgradeRedisLibraries(t *testing.T) {
	for _, lib := range redisLibraries {
		for protocol := 2; protocol <= 3; protocol++ {
			t.Run(lib.name+" RESP"+strconv.Itoa(protocol), func(t *testing.T) {
				u, addr := upgradedRedis(t)
				host, port, err := net.SplitHostPort(addr)
				if err != nil {
					t.Fatal(err)
				}
				p := lib.run(t, host, port, strconv.Itoa(protocol), "listen")
				p.want(`^subscribed$`)
				writer := dialRedis(t, addr)
				for _, data := range []string{"1", "2", "end"} {
					u.upgrade()
					writer.ask("PUBLISH news "+data+"\r\n", ":1\r\n")
					p.want("^got " + data + "$")
				}
				p.want(`^ok$`)
			})
		}
	}
}
