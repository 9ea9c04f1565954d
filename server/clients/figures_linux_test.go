package clients

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/soak"
)

// These tests measure the server, with a message of 128 bytes and as many subscribers as one
// process can have. Usually they run with few clients. MYRIAD_SOAK=1 gives them the size of the
// published figures, for an otherwise idle machine:
//
//	MYRIAD_SOAK=1 go test -run Figure -v -count 1 ./server/clients
const figureSubscribers = 15_000

// missedBySwarm is how many publications each client recovers in the storm.
const missedBySwarm = 5

func figureSize(t *testing.T) int {
	t.Helper()
	return crowdSize(t, 300, figureSubscribers)
}

// cpu returns the processor time that the server has used.
func (s server) cpu() time.Duration {
	s.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	ticks := 0
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(f)
		if err != nil {
			s.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func startSwarm(t *testing.T, s server) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, []string{"MYRIAD_CROWD=swarm", "MYRIAD_CROWD_ADDR=" + s.addr}, self)
	p.want("^ready$")
	return p
}

// ask sends the swarm a line and returns the number in its answer.
func ask(t *testing.T, p *process, line, answer string) int {
	t.Helper()
	p.say(line)
	n, err := strconv.Atoi(p.want(answer)[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var figureBody = `{"channel":"crowd","data":"` + strings.Repeat("x", 126) + `"}`

func postFigure(t *testing.T, c *http.Client, addr string) {
	t.Helper()
	r, err := c.Post("http://"+addr+"/api/publish", "application/json", strings.NewReader(figureBody))
	if err != nil {
		t.Error(err)
		return
	}
	io.Copy(io.Discard, r.Body)
	r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Errorf("publish: %s", r.Status)
	}
}

// delivered returns how many bytes a subscriber gets for one publication.
func delivered(kind string) int {
	if kind == "sse" {
		event := len("data: ") + 128 + len("\n\n")
		return len(strconv.FormatInt(int64(event), 16)) + 2 + event + 2
	}
	return 4 + len(`{"push":{"channel":"crowd","pub":{"data":}}}`) + 128
}

// TestFigureBroadcast measures U1, the time until the last subscriber has a publication, and M6,
// the memory of a subscriber before and after.
func TestFigureBroadcast(t *testing.T) {
	for _, kind := range []string{"ws", "sse"} {
		t.Run(kind, func(t *testing.T) {
			n := figureSize(t)
			s := serve(t)
			p := startSwarm(t, s)
			before, cpu := s.resident(), s.cpu()
			took := ask(t, p, fmt.Sprintf("join %d %s", n, kind), `^joined (\d+)$`)
			t.Logf("%d joined in %d ms, %.1f µs of CPU each", n, took/1000,
				float64((s.cpu()-cpu).Microseconds())/float64(n))
			s.fewRoutines(n)
			t.Logf("M6 idle: %d B each", (s.resident()-before)/n)
			spread(t, s, p, delivered(kind), n, quickAcks, "to new connections")
			spread(t, s, p, delivered(kind), n, 20, "to old ones")
			t.Logf("M6 after broadcasts: %d B each", (s.resident()-before)/n)
			s.fewRoutines(n)
		})
	}
}

// quickAcks is how many segments the kernel of a new connection's peer acknowledges one by one
// (TCP_MAX_QUICKACKS). On one machine, each such acknowledgement costs about as much as the
// segment.
const quickAcks = 16

// spread publishes `rounds` times, and waits each time until all n clients have the publication.
func spread(t *testing.T, s server, p *process, bytes, n, rounds int, to string) {
	var times []float64
	cpu := s.cpu()
	for range rounds {
		p.say(fmt.Sprintf("expect %d", bytes))
		p.want("^armed$")
		began := time.Now()
		postFigure(t, http.DefaultClient, s.addr)
		at, err := strconv.ParseInt(p.want(`^done (\d+)$`)[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, float64(at-began.UnixNano())/1e6)
	}
	slices.Sort(times)
	t.Logf("U1 %s: %.0f ms until the last client has it (%.0f to %.0f), %.1f µs of CPU per "+
		"delivery", to, times[rounds/2],
		times[0], times[rounds-1],
		float64((s.cpu()-cpu).Microseconds())/float64(n*rounds))
}

// TestFigurePublish measures U2: publications per second over HTTP, all of which must arrive.
func TestFigurePublish(t *testing.T) {
	total := soak.Size(t, 400, 30_000)
	for _, subscribers := range []int{1, 100} {
		for _, publishers := range []int{1, 16} {
			t.Run(fmt.Sprintf("%d subscribers, %d publishers", subscribers, publishers), func(t *testing.T) {
				s := serve(t)
				p := startSwarm(t, s)
				ask(t, p, fmt.Sprintf("join %d ws", subscribers), `^joined (\d+)$`)
				each := total / publishers
				before := s.messages()
				p.say(fmt.Sprintf("count %d", each*publishers))
				p.want("^armed$")
				began := time.Now()
				var wg sync.WaitGroup
				for range publishers {
					wg.Go(func() {
						c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
						defer c.CloseIdleConnections()
						for range each {
							postFigure(t, c, s.addr)
						}
					})
				}
				wg.Wait()
				took := time.Since(began)
				p.want(`^done `)
				if got := s.messages() - before; got != each*publishers*subscribers {
					t.Errorf("%d of %d delivered", got, each*publishers*subscribers)
				}
				t.Logf("U2: %.0f publications a second", float64(each*publishers)/took.Seconds())
			})
		}
	}
}

// messages returns how many publications have been queued for subscribers.
func (s server) messages() int { return s.metric("myriad_messages_total") }

// metric returns a metric of the page for Prometheus.
func (s server) metric(name string) int {
	s.t.Helper()
	r, err := http.Get("http://" + s.addr + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Body.Close()
	page, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "\n"+name+" ")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseFloat(line, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return int(n)
}

// stormSwarms is the number of processes for the clients of a storm. A single process would open
// connections more slowly than the server accepts them.
const stormSwarms = 2

// TestFigureStorm measures U3: all clients lose their connections, publications are made, and all
// clients reconnect at once and recover them.
func TestFigureStorm(t *testing.T) {
	n := figureSize(t)
	s := serve(t, "--namespace", "history-size=100 recovery=true")
	storm := newStorm(t, s, n)
	storm.measure("join %d bare", `^joined (\d+)()$`, "upgraded, the lower bound,")
	storm.leave()
	storm.measure("join %d ws", `^joined (\d+)()$`, "joined")
	storm.leave()
	for range missedBySwarm {
		postFigure(t, http.DefaultClient, s.addr)
	}
	if missing := storm.measure("back %d 0", `^back (\d+) (\d+)$`, "back"); missing != 0 {
		t.Errorf("%d did not recover everything", missing)
	}
}

// A storm is n clients of one server, in several swarms.
type storm struct {
	t      *testing.T
	s      server
	n      int
	swarms []*process
}

func newStorm(t *testing.T, s server, n int) *storm {
	w := &storm{t: t, s: s, n: n - n%stormSwarms}
	for range stormSwarms {
		w.swarms = append(w.swarms, startSwarm(t, s))
	}
	return w
}

// measure sends an order to all swarms at once, each for its share of the clients, and logs the
// time of the slowest. It returns the sum of the recoveries that miss something.
func (w *storm) measure(order, answer, did string) (missing int) {
	w.t.Helper()
	cpu := w.s.cpu()
	for _, p := range w.swarms {
		p.say(fmt.Sprintf(order, w.n/stormSwarms))
	}
	last := 0
	for _, p := range w.swarms {
		said := p.want(answer)
		micros, err := strconv.Atoi(said[1])
		if err != nil {
			w.t.Fatal(err)
		}
		last = max(last, micros)
		if said[2] != "" {
			n, err := strconv.Atoi(said[2])
			if err != nil {
				w.t.Fatal(err)
			}
			missing += n
		}
	}
	each := float64((w.s.cpu() - cpu).Microseconds()) / float64(w.n)
	w.t.Logf("U3: %d %s in %d ms, %.1f µs of CPU each, %d without everything", w.n, did, last/1000, each, missing)
	return missing
}

// leave closes all connections, and waits until the server has counted them out.
func (w *storm) leave() {
	w.t.Helper()
	for _, p := range w.swarms {
		p.say("leave")
		p.want("^left$")
	}
	for end := time.Now().Add(patience); w.s.metric("myriad_connections") > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("%d connections of clients that have left", w.s.metric("myriad_connections"))
		}
	}
}
