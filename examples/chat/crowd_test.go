package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
)

// crowdEnv makes a process of the test the crowd's: it has the number of guests and the URL.
const crowdEnv = "MYRIAD_CHAT_CROWD"

// maxFiles is how many guests a process of 20,000 descriptors can have that need one each.
const maxFiles = 19_500

// Guests connect to a plain http.Server from a separate process, 150 of them or
// MYRIAD_CHAT_SOCKETS. All receive what one of them sends. While they are silent they have no
// goroutine: over ws, over wss with a listener of tlsloop, and with ServeTLS, where each needs five
// descriptors.
func TestCrowd(t *testing.T) {
	for _, with := range []struct {
		name, scheme string
		most         int // guests
		serve        func(s *http.Server, ln net.Listener, pair tls.Certificate) error
	}{
		{"ws", "ws", maxFiles, func(s *http.Server, ln net.Listener, _ tls.Certificate) error { return s.Serve(ln) }},
		{"wss", "wss", maxFiles, func(s *http.Server, ln net.Listener,
			pair tls.Certificate) error {
			return s.Serve(secured(ln, pair))
		}},
		{"wss by ServeTLS", "wss", maxFiles / 5, func(s *http.Server, ln net.Listener, pair tls.Certificate) error {
			s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
			return s.ServeTLS(ln, "", "")
		}},
	} {
		t.Run(with.name, func(t *testing.T) {
			borrowed := httptest.NewTLSServer(nil)
			defer borrowed.Close()
			r := newRoom()
			server := &http.Server{Handler: routes(r)}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var serving sync.WaitGroup
			serving.Go(func() { _ = with.serve(server, ln, borrowed.TLS.Certificates[0]) })
			defer serving.Wait()
			defer server.Close()

			n, before, idle := min(sockets(t), with.most), runtime.NumGoroutine(), residentBytes()
			crowd, say := startCrowd(t, n, with.scheme+"://"+ln.Addr().String()+"/chat?name=Ann")
			crowd.want(t, "seated")
			for r.group.Len() < n {
				time.Sleep(time.Millisecond)
			}
			for runtime.NumGoroutine() > before+60 { // those of the last greetings end
				time.Sleep(time.Millisecond)
			}
			t.Logf("%d guests: %d goroutines, %d before; %d bytes resident for each", n, runtime.NumGoroutine(), before,
				(residentBytes()-idle)/n)
			fmt.Fprintln(say, "speak")
			crowd.want(t, "heard")
			_ = say.Close()
			for r.group.Len() > 0 {
				time.Sleep(time.Millisecond)
			}
		})
	}
}

// sockets is how many guests there are. They take a descriptor each, here and there.
func sockets(t *testing.T) int {
	t.Helper()
	text := os.Getenv("MYRIAD_CHAT_SOCKETS")
	if text == "" {
		return 150
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// residentBytes is 0 where the system does not tell.
func residentBytes() int {
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident int
	_, _ = fmt.Sscan(string(text), &size, &resident)
	return resident * os.Getpagesize()
}

// A crowdProcess is a process of guests, as this one sees it.
type crowdProcess struct{ says *bufio.Scanner }

func startCrowd(t *testing.T, n int, url string) (*crowdProcess, io.WriteCloser) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", crowdEnv, n, url))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = in.Close(), cmd.Wait() })
	return &crowdProcess{bufio.NewScanner(out)}, in
}

func (p *crowdProcess) want(t *testing.T, line string) {
	t.Helper()
	if !p.says.Scan() || p.says.Text() != line {
		t.Fatalf("the crowd said %q (%v), want %q", p.says.Text(), p.says.Err(), line)
	}
}

// beCrowd is the other process: it takes its seats, speaks when it is told to, and leaves when the
// input ends.
func beCrowd(order string) error {
	var n int
	var url string
	if _, err := fmt.Sscan(order, &n, &url); err != nil {
		return err
	}
	var heard sync.WaitGroup
	heard.Add(n)
	o := &websocket.DialOptions{TLSConfig: &tls.Config{InsecureSkipVerify: true}}
	o.Dispatch, o.Compression.Enabled, o.HandshakeTimeout = web.DispatchInline, true, time.Minute
	o.OnMessage = func(_ *websocket.Conn, _ websocket.Op, p []byte) {
		if string(p) == "Ann: Hello!" {
			heard.Done()
		}
	}
	guests, errs := make(chan *websocket.Conn, n), make(chan error, n)
	rows := make(chan struct{}, 50)
	for range n {
		rows <- struct{}{}
		go func() {
			c, _, err := websocket.Dial(context.Background(), url, o)
			if guests <- c; err != nil {
				errs <- err
			}
			<-rows
		}()
	}
	var last *websocket.Conn
	for range n {
		last = <-guests
	}
	select {
	case err := <-errs:
		return err
	default:
		fmt.Println("seated")
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan() &&
		strings.TrimSpace(lines.Text()) == "speak"; fmt.Println("heard") {
		if err := last.Write(websocket.OpText, []byte("Hello!")); err != nil {
			return err
		}
		heard.Wait()
	}
	return nil
}
