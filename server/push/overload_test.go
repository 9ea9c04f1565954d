package push_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/resp"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/doors"
	"github.com/myriad-go/myriad/server/push/doors/redis"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/membus"
	"github.com/myriad-go/myriad/web"
)

// This file is a machine on the simulator, whose processor is too slow for what clients ask for.
// Every event, send, accept, task and handshake takes fake time. A seed draws what they take, what
// the clients ask for, and how much more that is than the machine can do. overloadclient_test.go
// has the clients.
//
// The unit of load is the processor's time: a ratio of 2 asks for two seconds of it in a second.
// What a piece of work takes is measured beforehand, when nothing else is there. So what is
// finished has a worth, also if under load other things are finished than without.

// TestOverloadWorlds draws worlds. MYRIAD_OVERLOAD_SEED names the first one, and
// MYRIAD_OVERLOAD_SEEDS says how many there are.
func TestOverloadWorlds(t *testing.T) {
	first, count := uint64(0), soak.Size(t, uint64(6), uint64(300))
	if testing.Short() {
		count = 2
	}
	for name, number := range map[string]*uint64{"MYRIAD_OVERLOAD_SEED": &first, "MYRIAD_OVERLOAD_SEEDS": &count} {
		if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
			*number = n
		}
	}
	sum, n := 0.0, 0
	for seed := first; seed < first+count; seed++ {
		w := newOverWorld(t, seed)
		w.play()
		for _, kept := range w.kept {
			sum, n = sum+min(kept, 1), n+1
		}
		if t.Failed() {
			t.Fatalf("seed %d: %s\n%s", seed, w.describe(), strings.Join(w.trace, "\n"))
		}
		if testing.Verbose() {
			t.Logf("seed %d: %s", seed, w.describe())
		}
	}
	mean := sum / float64(max(n, 1))
	t.Logf("at 2 and 10 times of what is possible %.3f of the most is finished, in the mean of %d worlds", mean, count)
	if count >= 6 && mean < leastMean {
		t.Errorf("that is less than %v", leastMean)
	}
}

// leastMean is what is finished under overload at the least, as a part of the most that can be, in
// the mean of many worlds.
const leastMean = 0.9

// work is a kind of work that has a worth.
type work int

const (
	workPing     work = 0                                        // a ping and its answer, by form
	workJoin          = workPing + work(sessionForms)            // a session comes, and goes in the end, by form
	workDelivery      = workJoin + work(sessionForms) + iota - 2 // a publication reaches a subscriber
	// an HTTP request that is quick, on a connection that is kept
	workRequest
	workCompute // likewise, with a handler that computes, on the pool
	workVisit   // a connection for one request
	workShake   // a connection by TLS for one request
	// a publication by the HTTP API, without its deliveries
	workCall
	workRedis // a command of Redis
	workSlow  // a request whose handler waits
	works
)

var workNames = [works]string{"ping text", "ping binary", "ping stream", "ping events", "join text", "join binary",
	"join stream", "join events", "delivery", "request", "compute", "visit", "shake", "call", "redis", "slow"}

func (k work) String() string { return workNames[k] }

// offers are what is asked for at a rate, whatever the server does.
const (
	offerComeBack = iota // sessions leave and come back
	offerPublish         // publications by the program
	offerRequest
	offerCompute
	offerVisit
	offerShake
	offerCall
	offerRedis
	offers
)

// overOptions are what a seed draws.
type overOptions struct {
	costs     sim.Costs
	handshake time.Duration // of each half of it
	compute   time.Duration // a handler's work
	loops     int
	workers   int // of each server's pool
	room      int // for tasks that wait for them
	backlog   int
	overload  web.Overload // of the server with the slow handlers
	slow      time.Duration
	timing    push.Timing
	queue     int
	patience  time.Duration // of clients that wait for an answer, or to be let in
	patient   bool          // it is without end
	eager     bool          // sessions that give up come back at once, and not later each time
	forms     [sessionForms]int
	held      float64         // what pings take at a ratio of 1
	share     [offers]float64 // what each offer takes at a ratio of 1
	payload   int
	subscribe int     // percent of the sessions that have the busy channel
	times     float64 // the third ratio; the others are 2 and 10
	dead      int     // percent of the sessions that die
	stops     bool    // the machine stands still for two seconds
	shrinks   bool    // the processor takes twice as long for a while
}

func drawOverload(r *mathrand.Rand) (o overOptions) {
	chance := func(percent int) bool { return r.IntN(100) < percent }
	unit := []time.Duration{500 * time.Microsecond, time.Millisecond, 2 * time.Millisecond}[r.IntN(3)]
	cost := func(from, to float64) time.Duration {
		return time.Duration(float64(unit) * (from + r.Float64()*(to-from)))
	}
	o.costs = sim.Costs{Event: cost(0.5, 1.5), Accept: cost(0.3, 1.5), Send: cost(0.5, 1.5), Task: cost(0.2, 1)}
	o.handshake, o.compute = cost(2, 10), cost(1, 5)
	o.loops, o.workers, o.backlog = 1+r.IntN(2), 2+r.IntN(7), 64<<r.IntN(4)
	o.room = []int{4, 32, 256}[r.IntN(3)]
	o.overload = web.Overload(r.IntN(3))
	o.slow = time.Duration(2000+r.IntN(3000)) * time.Millisecond
	o.timing = push.Timing{Ping: time.Duration(2+r.IntN(4)) * time.Second, Close: time.Second}
	o.timing.Pong = o.timing.Ping * time.Duration(2+r.IntN(2)) / 5
	o.queue = 16<<10 + r.IntN(64<<10)
	o.patience = time.Duration(2000+r.IntN(4000)) * time.Millisecond
	if o.patient = chance(50); o.patient {
		o.patience = time.Hour
	}
	o.forms[r.IntN(int(sessionForms))] = 1
	for f := range o.forms {
		o.forms[f] += r.IntN(4)
	}
	sum := 0.0
	for i := range o.share {
		if chance(60) {
			o.share[i] = r.Float64()
		}
		sum += o.share[i]
	}
	o.held = 0.1 + 0.4*r.Float64()
	if sum == 0 {
		o.held = 1
	}
	for i := range o.share {
		o.share[i] *= (1 - o.held) / max(sum, 1e-9)
	}
	o.payload, o.subscribe = 1<<r.IntN(10), 5+r.IntN(60)
	o.times = 0.3 * math.Pow(10/0.3, r.Float64())
	o.dead, o.stops, o.shrinks = 1+r.IntN(10), chance(40), chance(30)
	o.eager = chance(25) && !o.patient
	return o
}

// An overWorld is the machine with its clients.
type overWorld struct {
	*sim.World
	t      *testing.T
	seed   uint64
	random *mathrand.Rand
	o      overOptions

	engine    *myriad.Engine
	server    *push.Server
	seam      *servertest.Seam
	webs      [3]*web.Server // the one of server, one with slow handlers, and one for those that come and go
	redis     *resp.Server
	addr      net.Addr // of server
	side      net.Addr // of the second
	plain     net.Addr // of the third
	secure    net.Addr // of the same, by TLS
	redisAddr net.Addr
	clientTLS *tls.Config
	logs      map[string]*overLog

	sessions []*overSession
	conns    []*overConn
	idle     [works][]*overConn
	open     [works]int
	shakes   []*shake
	ratio    float64
	owed     [offers]float64 // what is offered and not begun
	slowOwed float64

	price    [works]time.Duration
	done     [works]int
	gaveUp   [works]int
	refused  [works]int
	measured time.Time            // since when
	longest  [works]time.Duration // that one took which began since then
	nextID   int
	accepted map[int]string // the channels of publications that were accepted, by id
	denied   map[int]bool   // publications that were refused
	ended    int            // sessions that were in, by the server
	died     int
	buried   int
	mostLate time.Duration // since the first has died
	late     [200]time.Duration
	looks    int
	stepped  time.Time
	offered  time.Time // until when offers have been begun
	kept     []float64 // of what is finished at best, at the ratios that are too high
	figures  []string  // for reports
	trace    []string
}

// An overLog has a channel's publications in order.
type overLog struct {
	ids   []int
	index map[int]int
}

func (w *overWorld) log(channel string) *overLog {
	l := w.logs[channel]
	if l == nil {
		l = &overLog{index: map[int]int{}}
		w.logs[channel] = l
	}
	return l
}

func (w *overWorld) note(format string, args ...any) {
	if len(w.trace) >= 400 {
		w.trace = append(w.trace[:100], w.trace[200:]...)
	}
	w.trace = append(w.trace, fmt.Sprintf("%8.3fs ", w.Now().Sub(sim.Epoch).Seconds())+fmt.Sprintf(format, args...))
}

func (w *overWorld) fail(format string, args ...any) {
	w.t.Helper()
	w.note("FAILED: "+format, args...)
	w.t.Errorf("seed %d, after %v: "+format, append([]any{w.seed, w.Now().Sub(sim.Epoch)}, args...)...)
}

// describe says what the world is, and what it has measured.
func (w *overWorld) describe() string {
	text := fmt.Sprintf("%+v", w.o)
	for k, d := range w.price {
		text += fmt.Sprintf("\n  %-12v takes %v", work(k), d)
	}
	return text + "\n  " + strings.Join(w.figures, "\n  ")
}

// overKey is the key of the world's certificates.
var overKey = sync.OnceValue(func() tls.Certificate {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0),
		NotAfter: time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
})

// costlyRandom is the randomness of handshakes: each takes the processor's time.
type costlyRandom struct {
	w    *overWorld
	mu   sync.Mutex
	from *mathrand.ChaCha8
}

func (r *costlyRandom) Read(p []byte) (int, error) {
	if len(p) >= 32 { // the random of the hello, or a key
		r.w.Work(r.w.o.handshake)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.from.Read(p)
}

func newOverWorld(t *testing.T, seed uint64) *overWorld {
	t.Helper()
	buf.CheckLeaks(t)
	o := drawOverload(mathrand.New(mathrand.NewPCG(seed, 1)))
	world := sim.Calm()
	world.MaxSteps, world.TraceLines = 1<<30, 64
	world.Backlog, world.Accepts = o.backlog, 64
	world.OwnPools, world.Workers, world.Queue = true, o.workers, o.room
	w := &overWorld{World: sim.New(seed, world), t: t, seed: seed, random: mathrand.New(mathrand.NewPCG(seed, 2)), o: o,
		logs: map[string]*overLog{}, accepted: map[int]string{}, denied: map[int]bool{}}
	log := slog.New(slog.DiscardHandler)
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	var err error
	w.engine, err = myriad.Start(myriad.Config{Loops: o.loops, System: w.World, Logger: log})
	must(err)
	clock := worldTime{w.World}
	b := membus.New(membus.Config{Clock: clock, Random: pushtest.Seeded()})
	b.Tap(w.published)
	w.seam = new(servertest.Seam)
	w.server, err = push.New(push.Config{Clock: clock, Random: pushtest.Seeded(), Logger: log, Bus: b, Engine: w.engine,
		Timing: o.timing, Limits: push.Limits{Queue: o.queue}, DisableConsole: true,
		Doors: append(doors.All(doors.Config{}), w.seam)})
	must(err)
	t.Cleanup(func() { must(b.Close()) })
	mux := http.NewServeMux()
	mux.HandleFunc("/compute", func(rw http.ResponseWriter, _ *http.Request) {
		w.Work(o.compute)
		io.WriteString(rw, "computed")
	})
	mux.Handle("/", w.server)
	quick := func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "quick") }
	side := http.NewServeMux()
	side.HandleFunc("/quick", quick)
	side.HandleFunc("/slow", func(rw http.ResponseWriter, _ *http.Request) {
		w.NewParker().ParkFor(o.slow)
		io.WriteString(rw, "slow")
	})
	errors := slog.NewLogLogger(log.Handler(), slog.LevelError)
	w.webs[0] = &web.Server{Handler: mux, Engine: w.engine, ErrorLog: errors}
	w.webs[1] = &web.Server{Handler: side, Engine: w.engine, ErrorLog: errors, Workers: o.workers,
		Overload: o.overload}
	w.webs[2] = &web.Server{Handler: http.HandlerFunc(quick), Engine: w.engine, ErrorLog: errors,
		Protocols: new(http.Protocols),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{overKey()}, Time: w.Now,
			Rand: &costlyRandom{w: w, from: pushtest.Seeded()}}}
	w.webs[2].Protocols.SetHTTP1(true)
	w.clientTLS = &tls.Config{InsecureSkipVerify: true, Time: w.Now, CurvePreferences: []tls.CurveID{tls.X25519}}
	l, err := w.webs[0].Listen("tcp", "127.0.0.1:0")
	must(err)
	w.addr = l.Addr()
	l, err = w.webs[1].Listen("tcp", "127.0.0.1:0")
	must(err)
	w.side = l.Addr()
	l, err = w.webs[2].Listen("tcp", "127.0.0.1:0")
	must(err)
	w.plain = l.Addr()
	l, err = w.webs[2].ListenTLS("tcp", "127.0.0.1:0", "", "")
	must(err)
	w.secure = l.Addr()
	w.redis = redis.Listener(w.server, w.engine)
	rl, err := w.redis.Listen("tcp", "127.0.0.1:0")
	must(err)
	w.redisAddr = rl.Addr()
	return w
}

// published is called with what the bus publishes, in order.
func (w *overWorld) published(channel string, list []push.Publication) {
	l := w.log(channel)
	for _, p := range list {
		id := idIn(string(p.Data))
		if _, twice := l.index[id]; twice {
			w.fail("publication %d of %s is made twice", id, channel)
		}
		l.index[id] = len(l.ids)
		l.ids = append(l.ids, id)
	}
}

// finished notes that work is done.
func (w *overWorld) finished(k work, took time.Duration) {
	w.done[k]++
	if !w.Now().Add(-took).Before(w.measured) {
		w.longest[k] = max(w.longest[k], took)
	}
}

const (
	overTick  = 5 * time.Millisecond // offers come so often
	overLook  = 50 * time.Millisecond
	mostConns = 1000 // of each kind of request
)

// run lets time pass. Clients offer what they offer.
func (w *overWorld) run(d time.Duration) {
	end := w.Now().Add(d)
	for now := w.Now(); now.Before(end); now = w.Now() {
		w.offer(now.Sub(w.offered))
		w.offered = now
		w.RunFor(min(overTick, end.Sub(now))) // or longer: a processor that is busy ends what it has begun
		if now.Sub(w.stepped) >= overLook {
			w.look()
		}
	}
}

// look has clients look at the time.
func (w *overWorld) look() {
	now := w.Now()
	w.stepped = now
	for _, s := range w.sessions {
		s.step(now)
	}
	step := func(c *overConn) bool { return c.step(now) }
	w.conns = slices.DeleteFunc(w.conns, step)
	w.shakes = slices.DeleteFunc(w.shakes, func(h *shake) bool { return h.step(now) })
	late := w.engine.Late()
	if w.died > 0 {
		w.mostLate = max(w.mostLate, late)
	}
	w.late[w.looks%len(w.late)] = late
	w.looks++
}

// lateOf is how late the loops have been within the last seconds.
func (w *overWorld) lateOf() time.Duration { return slices.Max(w.late[:]) }

// findsWithin is how long the server may take to find a session that is dead: twice its time, and
// what it takes to come to all sessions a few times.
func (w *overWorld) findsWithin() time.Duration {
	return 2*(w.o.timing.Ping+w.o.timing.Pong) + time.Second + 4*w.mostLate
}

// offer begins what clients want in d.
func (w *overWorld) offer(d time.Duration) {
	if w.ratio == 0 {
		return
	}
	w.slowOwed += 2 * float64(w.o.workers) * d.Seconds() / w.o.slow.Seconds()
	for ; w.slowOwed >= 1; w.slowOwed-- {
		w.ask(workSlow)
	}
	for i := range offers {
		takes := w.takes(i)
		if takes == 0 {
			continue
		}
		w.owed[i] += min(w.ratio*w.o.share[i]/float64(takes), w.mostOf(i)/float64(time.Second)) * float64(d)
		for ; w.owed[i] >= 1; w.owed[i]-- {
			w.begin(i)
		}
	}
}

// mostOf is how much of an offer there is in a second at most. A client's queue holds what is
// published in ten seconds: a node refuses publications when it has been late for four.
func (w *overWorld) mostOf(offer int) float64 {
	if offer != offerPublish && offer != offerCall {
		return math.Inf(1)
	}
	return float64(w.o.queue) / float64(w.o.payload+64) / 20
}

// takes is what one of an offer takes. 0: no client is there for it.
func (w *overWorld) takes(offer int) time.Duration {
	switch offer {
	case offerComeBack:
		if len(w.sessions) == 0 {
			return 0
		}
		return w.average(workJoin)
	case offerPublish:
		return time.Duration(w.subscribers()) * w.price[workDelivery]
	case offerCall:
		return w.price[workCall] + time.Duration(w.subscribers())*w.price[workDelivery]
	}
	return w.price[offerWork[offer]]
}

var offerWork = [offers]work{offerRequest: workRequest, offerCompute: workCompute, offerVisit: workVisit,
	offerShake: workShake, offerCall: workCall, offerRedis: workRedis}

// subscribers is how many are in, in the channel that gets publications.
func (w *overWorld) subscribers() int { return w.seam.SubscribersHere("busy") }

// average is a price by form, weighed by how many sessions have the form.
func (w *overWorld) average(from work) time.Duration {
	sum, n := time.Duration(0), 0
	for f, weight := range w.o.forms {
		sum += time.Duration(weight) * w.price[from+work(f)]
		n += weight
	}
	return sum / time.Duration(n)
}

func (w *overWorld) begin(offer int) {
	switch offer {
	case offerComeBack:
		if s := w.sessions[w.random.IntN(len(w.sessions))]; s.state == sessionIn {
			s.leave(0)
		}
	case offerPublish:
		id := w.newID()
		if err := w.server.Publish(context.Background(), "busy", w.data(id)); err != nil {
			w.denied[id] = true
		} else {
			w.accepted[id] = "busy"
		}
	case offerVisit:
		w.visit()
	case offerShake:
		w.shake()
	default:
		w.ask(offerWork[offer])
	}
}

func (w *overWorld) newID() int {
	w.nextID++
	return w.nextID
}

func (w *overWorld) data(id int) []byte {
	return fmt.Appendf(nil, `"#%d#%s"`, id, strings.Repeat("p", w.o.payload))
}

// visit opens a connection for one request.
func (w *overWorld) visit() {
	c, began := w.newConn(w.plain), w.Now()
	w.open[workVisit]++
	c.ask([]byte("GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"), func(status int, _ string) {
		w.open[workVisit]--
		w.answered(workVisit, status, began)
		c.end()
	})
}

// answered notes the answer to a request.
func (w *overWorld) answered(k work, status int, began time.Time) {
	switch status {
	case 200:
		w.finished(k, w.Now().Sub(began))
	case 0:
		w.gaveUp[k]++
	case 503:
		w.refused[k]++
	default:
		w.fail("%v was answered %d", k, status)
	}
}

// ask sends a request on a connection that is idle, or a new one.
func (w *overWorld) ask(k work) {
	var c *overConn
	for n := len(w.idle[k]); n > 0 && c == nil; n = len(w.idle[k]) {
		c, w.idle[k] = w.idle[k][n-1], w.idle[k][:n-1]
		if c.over {
			c = nil
		}
	}
	if c == nil {
		if w.open[k] >= mostConns {
			w.gaveUp[k]++
			return
		}
		to := w.side
		switch k {
		case workCompute, workCall:
			to = w.addr
		case workRedis:
			to = w.redisAddr
		}
		c = w.newConn(to)
		c.redis = k == workRedis
	}
	w.open[k]++
	began, id := w.Now(), 0
	var request []byte
	switch k {
	case workRequest:
		request = []byte("GET /quick HTTP/1.1\r\nHost: test\r\n\r\n")
	case workSlow:
		request = []byte("GET /slow HTTP/1.1\r\nHost: test\r\n\r\n")
	case workCompute:
		request = []byte("GET /compute HTTP/1.1\r\nHost: test\r\n\r\n")
	case workRedis:
		request = []byte("*1\r\n$4\r\nPING\r\n")
	case workCall:
		id = w.newID()
		request = post("/api/publish", fmt.Sprintf(`{"channel":"busy","data":%s}`, w.data(id)))
	}
	c.ask(request, func(status int, body string) {
		w.open[k]--
		if w.answered(k, status, began); status != 0 {
			w.idle[k] = append(w.idle[k], c)
		}
		switch {
		case k != workCall || status == 0:
		case status == 200 && strings.HasSuffix(body, `{"result":{}}`):
			w.accepted[id] = "busy"
		default:
			w.denied[id] = true
		}
	})
}

// adviceIn is how long a client that was refused waits: as long as it was told to, else about a
// second.
func (w *overWorld) adviceIn(answer []byte) time.Duration {
	_, after, found := strings.Cut(string(answer), "Retry-After: ")
	seconds, _, _ := strings.Cut(after, "\r\n")
	if n, err := strconv.Atoi(seconds); found && err == nil {
		return time.Duration(n)*time.Second + time.Duration(w.random.IntN(500))*time.Millisecond
	}
	return time.Duration(500+w.random.IntN(1000)) * time.Millisecond
}

// setRatio changes how much is offered, and how many sessions there are.
func (w *overWorld) setRatio(ratio float64) {
	w.ratio, w.offered = ratio, w.Now()
	wanted := int(ratio * w.o.held * float64(w.o.timing.Ping) / float64(w.average(workPing)))
	for len(w.sessions) < wanted {
		w.sessions = append(w.sessions, w.newSession())
	}
	for _, s := range w.sessions[wanted:] {
		s.gone = true
		s.leave(0)
	}
	w.sessions = w.sessions[:wanted]
}

// newSession draws a session, which opens at the next look.
func (w *overWorld) newSession() *overSession {
	sum := 0
	for _, weight := range w.o.forms {
		sum += weight
	}
	n, form := w.random.IntN(sum), sessionForm(0)
	for ; n >= w.o.forms[form]; form++ {
		n -= w.o.forms[form]
	}
	channel := "quiet"
	if w.random.IntN(100) < w.o.subscribe {
		channel = "busy"
	}
	return &overSession{w: w, form: form, channel: channel, backAt: w.Now()}
}

// in is how many sessions are in.
func (w *overWorld) in() (n int) {
	for _, s := range w.sessions {
		if s.state == sessionIn {
			n++
		}
	}
	return n
}

// measure returns the worth of what is finished in d, as a part of the processor's time. More than
// all of it is of no worth: messages that leave together are cheaper than their price.
func (w *overWorld) measure(what string, d time.Duration) float64 {
	before, lost, refused, began := w.done, w.gaveUp, w.refused, w.Now()
	stats, limits, spent := w.engine.Stats(), w.engine.Limits(), w.Spent()
	w.longest, w.measured = [works]time.Duration{}, began
	late := time.Duration(0)
	for w.Now().Sub(began) < d {
		w.run(overLook)
		late = max(late, w.engine.Late())
	}
	passed := w.Now().Sub(began)
	worth, text := time.Duration(0), ""
	for k := range works {
		n := w.done[k] - before[k]
		worth += time.Duration(n) * w.price[k]
		if n > 0 || w.gaveUp[k] > lost[k] || w.refused[k] > refused[k] {
			text += fmt.Sprintf("; %v %d", k, n)
			if w.gaveUp[k] > lost[k] || w.refused[k] > refused[k] {
				text += fmt.Sprintf("-%d/%d", w.gaveUp[k]-lost[k], w.refused[k]-refused[k])
			}
		}
	}
	goodput := float64(worth) / float64(passed)
	nowStats, nowLimits := w.engine.Stats(), w.engine.Limits()
	w.figures = append(w.figures,
		fmt.Sprintf("%s: goodput %.3f of %.3f, %d of %d in, late by %v; accepted %d, of which "+
			"%d had left, %d reads, %d writes%s", what, goodput, float64(w.Spent()-spent)/float64(passed), w.in(),
			len(w.sessions), late, nowStats.Accepts-stats.Accepts, nowLimits.Left-limits.Left,
			nowStats.Reads-stats.Reads, nowStats.Writes-stats.Writes, text))
	return min(goodput, 1)
}

// play runs the world from its beginning to its end.
func (w *overWorld) play() {
	w.warmUp()
	w.SetCosts(w.o.costs)
	w.priceAll()
	most := 0.0
	for _, ratio := range []float64{0.4, 0.7, 0.9, 1, 1.1, 1.2} {
		w.setRatio(ratio)
		w.run(3 * time.Second)
		for range 10 {
			if w.in() < len(w.sessions) {
				w.run(time.Second) // they come all at once
			}
		}
		most = max(most, w.measure(fmt.Sprint(ratio, " times"), 4*time.Second))
		// Eager clients may keep the server full of peers that have left.
		if ratio < 0.8 && (!w.o.eager || w.in() == len(w.sessions)) {
			w.nothingWaits(ratio)
		}
	}
	for _, ratio := range []float64{2, 10} {
		w.setRatio(ratio)
		w.run(4 * time.Second)
		got := w.measure(fmt.Sprint(ratio, " times"), 5*time.Second)
		w.kept = append(w.kept, got/most)
		w.figures = append(w.figures, fmt.Sprintf("kept %.3f at %v times, patient %v, eager %v", got/most, ratio,
			w.o.patient, w.o.eager))
		if got < most*w.leastGoodput() {
			w.fail("at %v times of what is possible %.3f of the processor is of use; at best it is %.3f", ratio, got,
				most)
		}
	}
	w.trouble()
	w.recover()
	w.end()
}

// leastGoodput is what is finished at the least under overload, as a part of the most. Clients that
// give up waste what the server has done for them. It cannot know how long they wait: those that it
// lets in have waited for as long as the backlog is, and some of them for nearly as long as they
// do.
func (w *overWorld) leastGoodput() float64 {
	if w.o.patient {
		return 0.8
	}
	return 0.3
}

// warmUp has the server learn which handlers are quick.
func (w *overWorld) warmUp() {
	for range 40 {
		for _, k := range []work{workRequest, workCall, workRedis} {
			w.ask(k)
			w.await(k)
		}
		w.visit()
		w.await(workVisit)
		for f := range sessionForms {
			s := &overSession{w: w, form: f, channel: "busy"}
			s.open()
			w.await(workJoin + work(f))
			s.leave(0)
		}
	}
	w.run(time.Second)
}

// await waits until one more of that work is done.
func (w *overWorld) await(k work) {
	for began, before := w.Now(), w.done[k]; w.done[k] == before; w.RunFor(time.Millisecond) {
		if w.Now().Sub(began) > 30*time.Second {
			w.t.Fatalf("seed %d: nothing finishes a %v\n%s", w.seed, k, strings.Join(w.trace, "\n"))
		}
	}
}

// priceAll measures what each kind of work takes when nothing else is there.
func (w *overWorld) priceAll() {
	const times = 10
	spent := func(f func()) time.Duration {
		before := w.Spent()
		f()
		return w.Spent() - before
	}
	each := func(k work, begin func()) {
		begin() // the first one opens the connection
		w.await(k)
		w.RunFor(50 * time.Millisecond)
		w.price[k] = spent(func() {
			for range times {
				begin()
				w.await(k)
			}
			w.RunFor(100 * time.Millisecond) // connections close
		}) / times
	}
	for _, k := range []work{workRequest, workCompute, workCall, workRedis} {
		each(k, func() { w.ask(k) })
	}
	each(workVisit, w.visit)
	each(workShake, w.shake)
	for f := range sessionForms {
		s := &overSession{w: w, form: f, channel: "busy"}
		join := spent(func() {
			s.open()
			w.await(workJoin + work(f))
			w.RunFor(50 * time.Millisecond)
		})
		w.await(workPing + work(f))
		w.price[workPing+work(f)] = spent(func() {
			w.await(workPing + work(f))
			w.RunFor(100 * time.Millisecond)
			w.await(workPing + work(f))
			w.RunFor(100 * time.Millisecond)
		}) / 2
		w.price[workDelivery] = spent(func() {
			for range times {
				w.begin(offerPublish)
				w.await(workDelivery)
			}
			w.RunFor(50 * time.Millisecond)
		}) / times
		w.price[workJoin+work(f)] = join + spent(func() {
			s.leave(0)
			w.RunFor(time.Second)
		})
	}
}

// nothingWaits checks that handlers that are slow, and whose pool is full, delay no other client.
func (w *overWorld) nothingWaits(ratio float64) {
	for k := range works {
		if k == workSlow || k == workRequest && w.o.overload == web.OverloadPause {
			continue // the one that is slow; one that may open a connection, which waits while slow ones do
		}
		most := w.o.slow
		if k == workRequest { // its server has the slow ones: it waits for one if its route is on the pool for a moment
			most *= 2
		}
		if w.longest[k] > most {
			w.fail("at a ratio of %v a %v took %v; handlers that are slow take %v", ratio, k, w.longest[k], w.o.slow)
		}
	}
}

// trouble is a time at the ratio that was drawn in which sessions die, the machine stands still, or
// another program takes half of its processor.
func (w *overWorld) trouble() {
	w.setRatio(w.o.times)
	w.run(3 * time.Second)
	for _, s := range w.sessions {
		if s.state == sessionIn && s.form.answersPings() && w.random.IntN(100) < w.o.dead {
			s.die()
		}
	}
	if w.o.stops {
		w.note("the machine stands still")
		const stop = 2 * time.Second
		w.Work(stop)
		w.offered = w.offered.Add(stop) // the program that publishes stood still as well
		w.mostLate = max(w.mostLate, 2*time.Second)
	}
	if w.o.shrinks {
		w.note("the processor takes twice as long")
		c := w.o.costs
		w.SetCosts(sim.Costs{Event: 2 * c.Event, Accept: 2 * c.Accept, Send: 2 * c.Send, Task: 2 * c.Task})
		w.run(3 * time.Second)
		w.SetCosts(c)
	}
	for range 100 {
		if w.run(time.Second); !slices.ContainsFunc(w.sessions, func(s *overSession) bool {
			return s.state == sessionDead && !s.told
		}) {
			break
		}
	}
	w.measure(fmt.Sprintf("%.2f times, behind the trouble", w.o.times), 3*time.Second)
}

// waiting is the work that clients still wait for, in time of the processor.
func (w *overWorld) waiting() (d time.Duration) {
	for k, n := range w.open {
		d += time.Duration(n) * w.price[k]
	}
	for _, s := range w.sessions {
		if s.state != sessionIn {
			d += w.price[workJoin+work(s.form)]
		}
	}
	return d + time.Duration(len(w.shakes))*w.price[workShake]
}

// littleLoad is the ratio that pings have when all other load has gone.
const littleLoad = 0.3

// recover takes the load away, and checks that all is as it was before. What clients wait for by
// then is still done.
func (w *overWorld) recover() {
	w.setRatio(littleLoad)
	w.ratio = 0
	late, began := w.engine.Late(), w.Now()
	waiting := time.Duration(float64(w.waiting()) / (1 - littleLoad))
	told := func() (n int) { // that they come back later
		for _, s := range w.sessions {
			if s.state == sessionOutside && s.backAt.After(w.Now()) {
				n++
			}
		}
		return n
	}
	for w.in()+told() < len(w.sessions) && w.Now().Sub(began) < time.Minute {
		w.run(100 * time.Millisecond)
	}
	took := w.Now().Sub(began)
	w.figures = append(w.figures,
		fmt.Sprintf("%v after the load has gone, %v late and with work for %v, %d of %d "+
			"sessions are in, and %d were told to come later", took, late, waiting, w.in(), len(w.sessions), told()))
	if took > late+min(10*time.Second+waiting, 30*time.Second) {
		w.fail("%s", w.figures[len(w.figures)-1])
	}
	for range 70 { // the longest advice is a minute
		if w.in() < len(w.sessions) {
			w.run(time.Second)
		}
	}
	w.run(10 * time.Second)
	rests := false
	for !rests && w.Now().Sub(began) < 2*time.Minute+late {
		w.run(overLook) // sessions are pinged all the time
		stats := w.engine.Stats()
		rests = rests || stats.Late <= 64*w.o.costs.Event && stats.Queued == 0 && stats.Mailbox == 0 &&
			stats.Intake == 0
	}
	if stats := w.engine.Stats(); !rests {
		w.fail("when the load has gone the loops do not rest: late by %v, %d bytes, %d functions and %d connections "+
			"are queued", stats.Late, stats.Queued, stats.Mailbox, stats.Intake)
	}
	for _, s := range w.sessions {
		if s.state != sessionIn {
			w.note("a session (%v) is in state %d, back at %v", s.form, s.state, s.backAt.Sub(sim.Epoch))
		}
		s.complete()
	}
	if in := w.in(); in != len(w.sessions) || int(w.seam.Counts().Connections) != in {
		w.fail("after the load has gone %d of %d sessions are in, and the server counts %d", in, len(w.sessions),
			w.seam.Counts().Connections)
	}
	conns, open := w.connections()
	for range 50 { // some of them may be closing just now
		if conns > open {
			w.run(overLook)
			conns, open = w.connections()
		}
	}
	if conns > open {
		w.fail("after the load has gone the engine has %d connections, and there are %d clients", conns, open)
	}
	for id, channel := range w.accepted {
		if _, made := w.log(channel).index[id]; !made {
			w.fail("publication %d was accepted, and was not made", id)
		}
	}
	for id := range w.denied {
		if _, made := w.log("busy").index[id]; made {
			w.fail("publication %d was refused, and was made", id)
		}
	}
	w.figures = append(w.figures, fmt.Sprintf("%d accepted, %d refused; %d of %d dead found; %d ended", len(w.accepted),
		len(w.denied), w.buried, w.died, w.ended))
}

// connections are how many the engine has, and how many of them have a reason: a client, or a
// request that waits for a handler that is slow, whose client may have gone.
func (w *overWorld) connections() (conns, open int) {
	open = len(w.sessions) + w.Tasks()
	for _, c := range w.conns {
		if !c.over {
			open++
		}
	}
	return w.engine.Stats().Conns, open
}

// end ends the world, and checks that nothing is left.
func (w *overWorld) end() {
	w.SetCosts(sim.Costs{})
	for _, s := range w.sessions {
		s.gone = true
		s.leave(0)
	}
	for _, c := range w.conns {
		c.end()
	}
	w.server.Drain()
	for _, session := range w.server.Hub().Sessions() {
		session.Disconnect(answer.DisconnectShutdown)
	}
	w.RunFor(15 * time.Second)
	w.look()
	for _, stop := range []func(context.Context) error{w.redis.Shutdown, w.webs[0].Shutdown, w.webs[1].Shutdown,
		w.webs[2].Shutdown,
		w.server.Shutdown, w.engine.Shutdown} {
		if err := stop(context.Background()); err != nil {
			w.fail("the end: %v", err)
		}
	}
	w.Run()
	w.Check(w.t)
}
