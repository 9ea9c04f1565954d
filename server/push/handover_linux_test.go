package push_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad/handover"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
)

// socketPair returns both ends of a connection.
func socketPair(t *testing.T) (ends [2]*net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		nc, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = nc.(*net.UnixConn)
	}
	return ends
}

// program returns what of a server moves.
func program(t *testing.T, s *servertest.Live) *handover.Program {
	t.Helper()
	p := &handover.Program{Engine: s.Engine, RestWait: 10 * time.Second} // all come to rest, if late
	if err := s.AddTo(p, s.Web, "public"); err != nil {
		t.Fatal(err)
	}
	return p
}

// handOver moves everything of a server to another one.
func handOver(t *testing.T, from, to *servertest.Live) {
	t.Helper()
	ends := socketPair(t)
	from.PrepareMove(true)
	p := program(t, from)
	given := make(chan error, 1)
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
	taken, err := handover.Take(ends[1], program(t, to))
	if err == nil {
		err = taken.GoOn()
	}
	if err != nil {
		t.Fatalf("take: %v; give: %v", err, <-given)
	}
	if err := <-given; err != nil {
		t.Fatal(err)
	}
}

// Clients on real sockets go through several processes while programs publish: each has everything
// once and in order, and none is disconnected.
func TestHandOver(t *testing.T) {
	const publications, moves = 600, 4
	servers := []*servertest.Live{servertest.NewLive(t, movingConfig())}
	first := servers[0]
	socket := first.Dial(servertest.UpgradeRequest + servertest.MaskedText(
		"{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":\"kept:a\"}}"))
	if line := socket.Head(); !strings.HasPrefix(line, "HTTP/1.1 101 ") {
		t.Fatal(line)
	}
	socket.Frame()
	events := first.Dial("GET /events?channel=kept:a HTTP/1.1\r\nHost: test\r\n\r\n")
	stream := first.Dial("POST /connection/http_stream HTTP/1.1\r\nHost: test\r\nContent-Length: 63\r\n\r\n" +
		"{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":\"kept:a\"}}")
	for _, c := range []*servertest.RawClient{events, stream} {
		if line := c.Head(); !strings.HasPrefix(line, "HTTP/1.1 200 ") {
			t.Fatal(line)
		}
	}
	for !strings.Contains(events.Line(), "id: ") {
	}
	for !strings.Contains(stream.Line(), `"subscribe"`) {
	}
	var current atomic.Pointer[servertest.Live]
	current.Store(first)
	var published atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 1; i <= publications; {
			if current.Load().Publish(context.Background(), "kept:a", fmt.Appendf(nil, "%d", i)) == nil {
				i++
				published.Add(1)
			}
		}
	})
	read := func(next func() string, mark string) {
		wg.Go(func() {
			for want := 1; want <= publications; {
				for line := range strings.SplitSeq(next(), "\n") {
					_, data, is := strings.Cut(line, mark)
					var got int
					if !is {
						continue
					}
					if fmt.Sscan(strings.TrimRight(data, "}"), &got); got != want {
						t.Errorf("%s: received %d when %d was next", mark, got, want)
						return
					}
					want++
				}
			}
		})
	}
	read(func() string {
		op, p, err := servertest.ReadFrame(socket.R)
		if err != nil || op != 1 {
			return fmt.Sprintf(`"data":%d: %v`, -int(op), err)
		}
		return strings.ReplaceAll(p, `,"offset"`, " ")
	}, `"data":`)
	line := func(c *servertest.RawClient) func() string {
		return func() string {
			text, err := c.R.ReadString('\n')
			if err != nil {
				return "data: -1"
			}
			return strings.ReplaceAll(text, `,"offset"`, " ")
		}
	}
	read(line(events), "data: ")
	read(func() string { return strings.ReplaceAll(line(stream)(), "data: -1", `"data":-1`) }, `"data":`)
	for i := range moves {
		for published.Load() < int64((i+1)*publications/(moves+1)) && !t.Failed() {
			time.Sleep(50 * time.Microsecond) // the moves are spread over the publications
		}
		next := servertest.NewLive(t, movingConfig())
		handOver(t, current.Load(), next)
		current.Store(next)
		servers = append(servers, next)
	}
	wg.Wait()
	last := current.Load()
	if got := last.Hub.Counts(); got.Connections != 3 || got.Publishes != publications ||
		got.Messages != 3*publications {
		t.Errorf("%+v", got)
	}
	for _, s := range servers[:moves] {
		if got := s.Hub.Counts().Connections; got != 0 {
			t.Errorf("an old server has %d clients", got)
		}
	}
	fmt.Fprint(socket.Conn, servertest.MaskedText(`{"id":3,"ping":{}}`))
	if _, p := socket.Frame(); p != `{"id":3,"ping":{}}` {
		t.Errorf("a command in the last process is answered %q", p)
	}
	for _, c := range []*servertest.RawClient{socket, events, stream} {
		c.Close() // else the last server waits for the answer to its close frame
	}
}

// If the next process cannot go on, the old one does.
func TestHandOverFails(t *testing.T) {
	c := movingConfig()
	c.Namespaces = []push.Namespace{{Name: "kept", HistorySize: 11}}
	to := servertest.NewLive(t, c)
	from := servertest.NewLive(t, movingConfig()) // ends first: its connection may hold a block until then
	client := from.SubscribeNews()
	from.PublishNews("1")
	client.Frame()
	ends := socketPair(t)
	from.PrepareMove(true)
	p := program(t, from)
	given := make(chan error, 1)
	go func() {
		_, err := handover.Give(ends[0], p)
		given <- err
	}()
	if taken, err := handover.Take(ends[1], program(t, to)); err == nil {
		taken.Drop(nil)
		t.Error("the new server takes over")
	}
	if err := <-given; err == nil {
		t.Error("the old one is told nothing")
	}
	from.PrepareMove(false)
	from.PublishNews("2")
	if _, got := client.Frame(); !strings.Contains(got, `"data":2`) {
		t.Errorf("received %q", got)
	}
}

// A new process that gives up when it has everything ends at once: no client of any door is left
// there.
func TestHandOverIsGivenUp(t *testing.T) {
	to := servertest.NewLive(t, movingConfig())
	from := servertest.NewLive(t, movingConfig()) // ends first: its connection may hold a block until then
	client := from.SubscribeNews()
	events := from.Dial("GET /events?channel=kept:a HTTP/1.1\r\nHost: test\r\n\r\n")
	stream := from.Dial("POST /connection/http_stream HTTP/1.1\r\nHost: test\r\nContent-Length: 63\r\n\r\n" +
		"{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":\"kept:a\"}}")
	for _, c := range []*servertest.RawClient{events, stream} {
		if line := c.Head(); !strings.HasPrefix(line, "HTTP/1.1 200 ") {
			t.Fatal(line)
		}
	}
	notice := func(n int) {
		from.PublishNews(fmt.Sprint(n))
		if err := from.Publish(t.Context(), "kept:a", fmt.Append(nil, n)); err != nil {
			t.Fatal(err)
		}
		if _, got := client.Frame(); !strings.Contains(got, fmt.Sprint(`"data":`, n)) {
			t.Errorf("by WebSocket: %q", got)
		}
		for !strings.Contains(events.Line(), fmt.Sprint("data: ", n)) {
		}
		for !strings.Contains(stream.Line(), fmt.Sprint(`"data":`, n)) {
		}
	}
	for !strings.Contains(events.Line(), "id: ") {
	}
	for !strings.Contains(stream.Line(), `"subscribe"`) {
	}
	notice(1)
	ends := socketPair(t)
	from.PrepareMove(true)
	p := program(t, from)
	given := make(chan error, 1)
	go func() {
		_, err := handover.Give(ends[0], p)
		given <- err
	}()
	taken, err := handover.Take(ends[1], program(t, to))
	if err != nil {
		t.Fatal(err)
	}
	if taken.Conns() != 3 {
		t.Errorf("%d clients have come", taken.Conns())
	}
	taken.Drop(nil)
	if err := <-given; err == nil {
		t.Error("the old one is not told")
	}
	from.PrepareMove(false)
	if got := to.Hub.Counts().Connections; got != 0 {
		t.Errorf("the server that gave up has %d clients", got)
	}
	if err := to.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	notice(2)
}

// A client that reads one long response goes on to send by requests of their own. One of which a
// part has come when the client moves is told to come again: the client has not gone.
func TestEmulationAfterHandOver(t *testing.T) {
	from, to := servertest.NewLive(t, movingConfig()), servertest.NewLive(t, movingConfig())
	stream := from.Dial("POST /connection/http_stream HTTP/1.1\r\nHost: test\r\nContent-Length: 21\r\n\r\n" +
		`{"id":1,"connect":{}}`)
	stream.Head()
	var session string
	for session == "" {
		_, rest, _ := strings.Cut(stream.Line(), `"session":"`)
		session, _, _ = strings.Cut(rest, `"`)
	}
	post := func(id int) string {
		body := fmt.Sprintf(`{"session":%q,"node":"","data":"{\"id\":%d,\"subscribe\":{\"channel\":\"kept:a\"}}"}`,
			session, id)
		return fmt.Sprintf("POST /emulation HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	whole := post(2)
	had := from.Engine.Stats().BytesIn
	late := from.Dial(whole[:len(whole)-1])
	for from.Engine.Stats().BytesIn < had+uint64(len(whole)-1) {
		time.Sleep(time.Millisecond)
	}
	ends := socketPair(t)
	p, next := program(t, from), program(t, to)
	p.RestWait = -1 // the request does not end
	thawers := slices.Collect(maps.Values(p.Servers))
	for rests := false; !rests; time.Sleep(time.Millisecond) { // until the handler of the stream has returned
		from.PrepareMove(true)
		f, err := from.Engine.Freeze(0, thawers...)
		if err != nil {
			t.Fatal(err)
		}
		rests = f.Len() == 1
		f.GoOn()
	}
	given := make(chan *handover.Given, 1)
	go func() {
		r, err := handover.Give(ends[0], p)
		if err != nil {
			t.Error(err)
		}
		given <- r
	}()
	taken, err := handover.Take(ends[1], next)
	if err == nil {
		err = taken.GoOn()
	}
	if err != nil {
		t.Fatal(err)
	}
	r := <-given
	if r.Moved != 1 || r.Left != 1 {
		t.Fatalf("%+v", r.Result)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.MoveRest(over); err != nil {
		t.Error(err)
	}
	fmt.Fprint(late, whole[len(whole)-1:])
	if line := late.Head(); !strings.HasPrefix(line, "HTTP/1.1 503 ") {
		t.Errorf("a request that was under way is answered %q", line)
	}
	again := to.Dial(post(3))
	if line := again.Head(); !strings.HasPrefix(line, "HTTP/1.1 204 ") {
		t.Errorf("a request to the new process is answered %q", line)
	}
	for !strings.Contains(stream.Line(), `"id":3,"subscribe"`) {
	}
}
