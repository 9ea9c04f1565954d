package clients

import (
	"bufio"
	"context"
	bytesof "encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/soak"
)

// A listener is a client of one door that has every publication of the channel "kept:a", over one
// connection after the other. It recognises them by their data, "p1." and so on, whatever is around
// that.
type listener struct {
	t    *testing.T
	door string
	addr string
	at   *announced

	last    atomic.Int64 // publication
	ends    atomic.Int64 // of connections, without our doing
	asked   atomic.Int64 // commands, of the door "json"
	replied int64
	lastID  string // of an event
	over    context.Context
}

// announced is what the publisher knows of the channel.
type announced struct {
	last  atomic.Int64 // publication that was accepted
	epoch atomic.Value // string
}

// doorsOfUpgrades are the doors whose clients move.
var doorsOfUpgrades = []string{"json", "protobuf", "http_stream", "sse"}

var marks = regexp.MustCompile(`"p(\d+)\."|\nid: ([^\n]+)\n|"id":(\d+)[,}]`)

// follow is the life of a listener.
func (l *listener) follow() {
	for l.over.Err() == nil {
		subscribed, err := l.once()
		if l.over.Err() != nil {
			return
		}
		if subscribed {
			l.ends.Add(1)
		}
		l.asked.Store(0)
		l.replied = 0
		if errors.Is(err, errOrder) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

var errOrder = errors.New("out of order")

// once follows one connection to its end.
func (l *listener) once() (subscribed bool, err error) {
	nc, err := net.Dial("tcp", l.addr)
	if err != nil {
		return false, err
	}
	defer nc.Close()
	defer context.AfterFunc(l.over, func() { nc.Close() })()
	if _, err := nc.Write(l.hello()); err != nil {
		return false, err
	}
	var text []byte
	for r := bufio.NewReader(nc); ; {
		room := make([]byte, 32<<10)
		n, err := r.Read(room)
		if err != nil {
			return subscribed, err
		}
		text = append(text, room[:n]...)
		end := 0
		for _, at := range marks.FindAllSubmatchIndex(text, -1) {
			end = at[1] - 1 // an end of line may begin the next one
			if err := l.heard(nc, text, at); err != nil {
				return subscribed, err
			}
		}
		subscribed = subscribed || l.last.Load() > 0
		text = text[max(end, len(text)-256):]
	}
}

// heard takes in one mark.
func (l *listener) heard(nc net.Conn, text []byte, at []int) error {
	switch {
	case at[2] >= 0:
		n, _ := strconv.ParseInt(string(text[at[2]:at[3]]), 10, 64)
		if last := l.last.Load(); n != last+1 {
			l.t.Errorf("%s: publication %d came when %d was next", l.door, n, last+1)
			return errOrder
		}
		l.last.Store(n)
	case at[4] >= 0:
		l.lastID = string(text[at[4]:at[5]])
	case l.door == "json":
		n, _ := strconv.ParseInt(string(text[at[6]:at[7]]), 10, 64)
		if n < firstCommand {
			go l.ask(nc)
			return nil
		}
		if l.replied++; n != firstCommand+l.replied-1 {
			l.t.Errorf("the reply to command %d came when that to %d was next", n, firstCommand+l.replied-1)
			return errOrder
		}
	}
	return nil
}

// firstCommand is the number of the first command that is sent while the server is upgraded.
const firstCommand = 10

// ask sends one command after the other, without waiting for replies.
func (l *listener) ask(nc net.Conn) {
	if !l.asked.CompareAndSwap(0, 1) {
		return
	}
	for n := firstCommand; l.over.Err() == nil; n++ {
		command := fmt.Sprintf(`{"id":%d,"history":{"channel":"kept:a"}}`, n)
		if _, err := nc.Write(maskedFrame(0x81, command)); err != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// maskedFrame is a client's frame, with a key that changes nothing.
func maskedFrame(first byte, text string) []byte {
	frame := []byte{first, 0x80 | byte(len(text))}
	if len(text) > 125 {
		frame = bytesof.BigEndian.AppendUint16([]byte{first, 0x80 | 126}, uint16(len(text)))
	}
	return append(append(frame, 0, 0, 0, 0), text...)
}

// hello is the request of a connection, which recovers if the listener has been there.
func (l *listener) hello() []byte {
	epoch, _ := l.at.epoch.Load().(string)
	last := l.last.Load()
	commands := `{"id":1,"connect":{}}` + "\n" + `{"id":2,"subscribe":{"channel":"kept:a"}}`
	if last > 0 {
		commands = fmt.Sprintf(`{"id":1,"connect":{}}`+"\n"+
			`{"id":2,"subscribe":{"channel":"kept:a","recover":true,"epoch":%q,"offset":%d}}`, epoch, last)
	}
	switch l.door {
	case "sse":
		request := "GET /events?channel=kept:a HTTP/1.1\r\nHost: " + l.addr + "\r\n"
		if l.lastID != "" {
			request += "Last-Event-ID: " + l.lastID + "\r\n"
		}
		return []byte(request + "\r\n")
	case "http_stream":
		return fmt.Appendf(nil, "POST /connection/http_stream HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s",
			l.addr,
			len(commands), commands)
	}
	query, first := "", byte(0x81)
	if l.door == "protobuf" {
		subscribe := field(1, "kept:a")
		if last > 0 {
			subscribe += "\x18\x01" + field(6, epoch) + "\x38" + string(bytesof.AppendUvarint(nil, uint64(last)))
		}
		command := "\x08\x02" + field(5, subscribe)
		query, first = "?cf_protocol=protobuf", 0x82
		commands = "\x04\x08\x01\x22\x00" + string(bytesof.AppendUvarint(nil, uint64(len(command)))) + command
	}
	return append([]byte("GET /connection/websocket"+query+" HTTP/1.1\r\nHost: "+l.addr+"\r\nUpgrade: websocket\r\n"+
		"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"),
		maskedFrame(first, commands)...)
}

// field is a field of Protobuf with a length.
func field(number int, text string) string {
	return string(bytesof.AppendUvarint([]byte{byte(number<<3 | 2)}, uint64(len(text)))) + text
}

// publish publishes "p1." and so on, each again until it is accepted, until ctx ends.
func (a *announced) publish(ctx context.Context, t *testing.T, addr string, pause time.Duration) {
	client := &http.Client{Transport: &http.Transport{}, Timeout: patience}
	defer client.CloseIdleConnections()
	accepted := regexp.MustCompile(`"offset":(\d+),"epoch":"([^"]+)"`)
	for n := int64(1); ctx.Err() == nil; {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/api/publish",
			strings.NewReader(fmt.Sprintf(`{"channel":"kept:a","data":"p%d.","idempotency_key":"%[1]d"}`, n)))
		if err != nil {
			t.Error(err)
			return
		}
		response, err := client.Do(request)
		if err == nil {
			body, failed := io.ReadAll(response.Body)
			response.Body.Close()
			if found := accepted.FindSubmatch(body); failed == nil && response.StatusCode == http.StatusOK &&
				found != nil {
				if string(found[1]) != strconv.FormatInt(n, 10) {
					t.Errorf("publication %d was made as %s", n, found[1])
					return
				}
				a.epoch.Store(string(found[2]))
				a.last.Store(n)
				n++
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// A witnessed is a server with listeners of all doors and a publisher, whose upgrade is relayed.
type witnessed struct {
	server
	link      string // of which the server was started
	at        *announced
	listeners []*listener
	stop      func()
	new       int // the latest process, as the relay says
}

// witness starts a server whose upgrade will be relayed, with so many listeners.
func witness(t *testing.T, listeners int, kill string) *witnessed {
	t.Helper()
	w := &witnessed{link: filepath.Join(t.TempDir(), "myriad"), at: new(announced)}
	if err := os.Symlink(binary, w.link); err != nil {
		t.Fatal(err)
	}
	p := start(t, []string{relayVariable + "=" + binary, relayKillVariable + "=" + kill}, w.link, "serve", "--listen",
		"127.0.0.1:0", "--namespace", "name=kept history-size=60000 history-age=1h recovery presence")
	w.server = server{p, p.want(`url=http://([0-9.:]+)`)[1]}
	t.Cleanup(func() {
		if w.new > 0 {
			_ = syscall.Kill(w.new, syscall.SIGKILL)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	w.stop = func() {
		cancel()
		all.Wait()
	}
	t.Cleanup(w.stop)
	for i := range listeners {
		l := &listener{t: t, door: doorsOfUpgrades[i%len(doorsOfUpgrades)], addr: w.addr, at: w.at, over: ctx}
		w.listeners = append(w.listeners, l)
		all.Go(l.follow)
	}
	w.waitFor("a subscription of each", func() bool { return w.connections() >= listeners })
	all.Go(func() { w.at.publish(ctx, t, w.addr, 2*time.Millisecond) })
	w.reach(5)
	return w
}

// connections is how many clients are subscribed to the channel.
func (w *witnessed) connections() (n int) {
	r, err := http.Post("http://"+w.addr+"/api/presence_stats", "application/json",
		strings.NewReader(`{"channel":"kept:a"}`))
	if err != nil {
		return 0
	}
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body)
	_, rest, _ := strings.Cut(string(body), `"num_clients":`)
	fmt.Sscan(rest, &n)
	return n
}

func (w *witnessed) waitFor(what string, done func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if w.t.Failed() {
			w.t.FailNow()
		}
		if time.Now().After(end) {
			w.t.Fatalf("%s did not happen in %v", what, patience)
		}
	}
}

// reach waits until all listeners have so many more publications.
func (w *witnessed) reach(more int64) {
	w.t.Helper()
	to := w.at.last.Load() + more
	w.waitFor(fmt.Sprint("publication ", to, " for each"), func() bool {
		for _, l := range w.listeners {
			if l.last.Load() < to {
				return false
			}
		}
		return true
	})
}

// ends is how many connections have ended.
func (w *witnessed) ends() (n int64) {
	for _, l := range w.listeners {
		n += l.ends.Load()
	}
	return n
}

// An outcome is how a relayed upgrade has gone.
type outcome struct {
	killed string // "old", "new" or nothing
	had    bool   // the new process had said that it has all
	moved  int    // connections whose descriptors it had been sent
}

// upgrade replaces the program by the relay, and asks for the upgrade.
func (w *witnessed) upgrade() (o outcome) {
	w.t.Helper()
	w.replaceByRelay()
	w.new, _ = strconv.Atoi(w.want(`relay: new (\d+)`)[1])
	said := w.want(`relay: (over|killed (\w+) at message \d+ of the \w+ one, moved (\d+), all had: (\w+))`)
	w.t.Log(said[0])
	o = outcome{killed: said[2], had: said[4] == "true"}
	o.moved, _ = strconv.Atoi(said[3])
	return o
}

// replaceByRelay replaces the program by the relay, and asks for the upgrade.
func (w *witnessed) replaceByRelay() {
	w.t.Helper()
	self, err := os.Executable()
	if err == nil {
		err = errors.Join(os.Symlink(self, w.link+".next"), os.Rename(w.link+".next", w.link))
	}
	if err == nil {
		err = w.cmd.Process.Signal(syscall.SIGUSR2)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// judge checks what clients have noticed of an upgrade.
func (w *witnessed) judge(o outcome) {
	w.t.Helper()
	old := w.cmd.Process.Pid
	switch {
	case o.killed == "": // both live on, and the old one ends
		w.waitFor("the end of the old process", func() bool { return hasEnded(old) })
	case o.killed == "new" && w.says("no new process took over, and this one goes on", old):
	case o.killed == "new" && o.had: // the old one has given all away, and the new one has died with it
		w.noneServes()
		return
	case o.killed == "new":
		w.t.Error("the old process has ended, and the new one had not said that it has all")
		return
	case w.says("took the place of another process", w.new):
	case o.had, o.moved > 0:
		w.t.Errorf("the new process has ended, and had %d connections, or all: %t", o.moved, o.had)
		return
	default:
		w.noneServes()
		return
	}
	w.reach(10)
	most := 0
	if o.killed == "old" && !o.had { // all but those whose descriptors the new one has, beside that of the publisher
		most = max(0, len(w.listeners)+1-o.moved)
	}
	if n := w.ends(); n > int64(most) {
		w.t.Errorf("%d connections have ended, at most %d may", n, most)
	}
	if hasEnded(old) == hasEnded(w.new) {
		w.t.Errorf("the old process has ended: %t, the new one: %t", hasEnded(old), hasEnded(w.new))
	}
}

// says waits for such a line of the log, or for the end of the process. It returns which it was.
func (w *witnessed) says(text string, pid int) bool {
	w.t.Helper()
	found := strings.Contains(strings.Join(w.seen, "\n"), text)
	w.waitFor(fmt.Sprintf("%q, or the end of process %d", text, pid), func() bool {
		ended := hasEnded(pid)
		for len(w.lines) > 0 {
			line := <-w.lines
			w.seen = append(w.seen, line)
			found = found || strings.Contains(line, text)
		}
		return found || ended
	})
	return found
}

// noneServes checks that no process is left that serves: a supervisor starts the server again.
func (w *witnessed) noneServes() {
	w.t.Helper()
	w.waitFor("the end of all connections", func() bool { return w.ends() >= int64(len(w.listeners)) })
	if nc, err := net.Dial("tcp", w.addr); err == nil {
		nc.Close()
		w.t.Error("a process listens still")
	}
}

// Either process is killed between any two messages of an upgrade, before and after each. As long
// as one of them has everything, clients of all doors notice nothing. If the old one dies before,
// the connections go on that it had sent, and the clients of the others recover.
func TestUpgradeKilled(t *testing.T) {
	listeners := soak.Size(t, 12, 600)
	for _, victim := range []string{"new", "old"} {
		for _, when := range []string{"before", "after"} {
			t.Run(victim+" "+when, func(t *testing.T) {
				t.Parallel()
				for n, reached := 0, true; reached && n < mostMessages; n++ {
					t.Run(strconv.Itoa(n), func(t *testing.T) {
						w := witness(t, listeners, fmt.Sprintf("%s %d %s", victim, n, when))
						o := w.upgrade()
						w.judge(o)
						reached = o.killed != "" && !t.Failed()
						if !reached && n < fewestMessages {
							t.Errorf("an upgrade had %d messages only", n)
						}
					})
				}
			})
		}
	}
}

// fewestMessages is less than an upgrade has: hello, accept, a listener, the state and its end,
// connections, all, have, go.
const fewestMessages = 8

// mostMessages is more than it has, also at full size.
const mostMessages = 200

// The same at random moments.
func TestUpgradeKilledAtAnyMoment(t *testing.T) {
	runs, seed := soak.Size(t, 3, 200), rand.Uint64()
	if text := os.Getenv("UPGRADE_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("UPGRADE_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range runs {
		victim := []string{"new", "old"}[random.IntN(2)]
		moment := time.Duration(random.Int64N(int64(60 * time.Millisecond)))
		t.Run(fmt.Sprint(i, " ", victim, " after ", moment), func(t *testing.T) {
			w := witness(t, 4+random.IntN(30), fmt.Sprintf("%s %d in", victim, moment.Microseconds()))
			w.judge(w.upgrade())
		})
	}
}
