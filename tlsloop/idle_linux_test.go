package tlsloop_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/soak"
)

// holderEnv marks the child process that holds the clients, and says whom they call.
const holderEnv = "MYRIAD_TLS_HOLDER"

func raiseFiles(t testing.TB) uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = limit.Max
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	return limit.Cur
}

// A thousand connections, or ten thousand at full size, that have spoken and are silent, on fewer
// than fifty goroutines; then all of them speak again.
func TestIdle(t *testing.T) {
	if testing.Short() {
		t.Skip("a thousand handshakes take seconds")
	}
	conns := soak.Size(t, 1000, 10_000)
	if files := raiseFiles(t); files < uint64(conns+200) {
		t.Skipf("the limit is %d descriptors; ulimit -n %d", files, conns+200)
	}
	e := start(t, myriad.Config{})
	heard, again := holder(t, conns, listen(t, e, patient.Handler(serverConfig(), always(echo()))))
	heard("all have spoken")
	if n := e.Stats().Conns; n != conns {
		t.Errorf("%d connections, want %d", n, conns)
	}
	if !goroutinePerConn {
		eventually(t, fmt.Sprintf("%d connections have fewer than 50 goroutines", conns),
			func() bool { return runtime.NumGoroutine() < 50 })
	}
	again()
	heard("all have spoken again")
}

// holder starts a child process with clients that speak, and say so. again has them speak again.
func holder(t *testing.T, conns int, addr string) (heard func(want string), again func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestHolder$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", holderEnv, conns, addr))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	said := bufio.NewScanner(out)
	heard = func(want string) {
		t.Helper()
		for said.Scan() {
			if said.Text() == want {
				return
			}
		}
		t.Fatalf("the clients do not say %q", want)
	}
	return heard, func() { send(t, in, "again\n") }
}

// What an idle connection has on the heap: with LeanTLS less than 1.3 kB, a third of what it has
// with a tls.Conn.
func TestIdleBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("measures two thousand connections")
	}
	const conns = 1000
	if files := raiseFiles(t); files < conns+200 {
		t.Skipf("the limit is %d descriptors; ulimit -n %d", files, conns+200)
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(100 << 20)) // so small that there is no ballast
	bytes := map[bool]int{}
	for _, lean := range []bool{false, true} {
		t.Run(fmt.Sprintf("LeanTLS %v", lean), func(t *testing.T) {
			o := patient
			o.LeanTLS = lean
			e := start(t, myriad.Config{})
			h := &probe{received: echo().received} // it keeps nothing of its connections
			addr := listen(t, e, o.Handler(serverConfig(), always(idle{h})))
			before := live()
			heard, _ := holder(t, conns, addr)
			heard("all have spoken")
			bytes[lean] = (live() - before) / conns
			t.Logf("%d bytes for each of %d connections", bytes[lean], conns)
		})
	}
	if goroutinePerConn {
		return
	}
	if lean, before := bytes[true], bytes[false]; lean > 1300 || 2*lean > before {
		t.Errorf("%d bytes with LeanTLS, %d without", lean, before)
	}
}

// idle is a probe that keeps no record of its connections.
type idle struct{ *probe }

func (idle) Opened(*myriad.Conn)        {}
func (idle) Closed(*myriad.Conn, error) {}

// live is how much of the heap is in use.
func live() int {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestHolder is the child process of TestIdle.
func TestHolder(t *testing.T) {
	var conns int
	var addr string
	if _, err := fmt.Sscan(os.Getenv(holderEnv), &conns, &addr); err != nil {
		t.Skip("the child process of TestIdle")
	}
	raiseFiles(t)
	held := make([]*tls.Conn, conns)
	each := func(f func(i int) error) {
		var wg sync.WaitGroup
		for first := range 16 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for i := first; i < conns; i += 16 {
					if err := f(i); err != nil {
						panic(err)
					}
				}
			}()
		}
		wg.Wait()
	}
	// The authority of the parent is another one.
	cfg := &tls.Config{InsecureSkipVerify: true}
	speak := func(i int) error {
		msg := fmt.Sprintf("hello from %d", i)
		if _, err := io.WriteString(held[i], msg); err != nil {
			return err
		}
		got := make([]byte, len(msg))
		if _, err := io.ReadFull(held[i], got); err != nil || string(got) != msg {
			return fmt.Errorf("%q, %w", got, err)
		}
		return nil
	}
	each(func(i int) (err error) {
		if held[i], err = tls.Dial("tcp", addr, cfg); err != nil {
			return err
		}
		return speak(i)
	})
	fmt.Println("all have spoken")
	if line, _ := bufio.NewReader(os.Stdin).ReadString('\n'); !strings.HasPrefix(line, "again") {
		return
	}
	each(speak)
	fmt.Println("all have spoken again")
	each(func(i int) error { return held[i].NetConn().Close() })
}
