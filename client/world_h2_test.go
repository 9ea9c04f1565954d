package client_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// This file is a server of HTTP/2, of golang.org/x/net's framer. It counts strictly what the client
// may do: streams, bytes of windows, the size of header lists.

// h2Settings are a host's.
type h2Settings struct {
	streams   int           // SETTINGS_MAX_CONCURRENT_STREAMS; -1: it is absent
	raise     time.Duration // when that becomes later; 0: never
	later     int
	list      int           // SETTINGS_MAX_HEADER_LIST_SIZE; 0: it is absent
	window    int           // SETTINGS_INITIAL_WINDOW_SIZE; -1: it is absent
	late      time.Duration // how late windows are raised
	whole     bool          // a list that is too large ends the connection
	first     time.Duration // before the first SETTINGS
	pingless  bool          // PING is not answered
	keepsOpen bool          // the connection stays open behind GOAWAY and the last answer
}

func (s *h2Settings) draw(r *rand.Rand, o *options) {
	*s = h2Settings{
		streams: pick(r, -1, -1, 0, 1, 1, 2, 5, 100), list: pick(r, 0, 0, 600, 3000),
		window: pick(r, -1, -1, 0, 1, 1000), late: pick(r, 0, 0, ms, 50*ms), whole: chance(r, 0.7),
		first: pick(r, 0, 0, 0, 30*ms), keepsOpen: chance(r, 0.5),
	}
	if s.later = pick(r, 100, 100, 1, 5); chance(r, 0.3) || s.streams == 0 {
		s.raise = between(r, ms, o.stop)
	}
	if o.uploads > 0 {
		s.streams = pick(r, -1, 5, 100)
	}
	if o.crowd {
		s.streams, s.window, s.raise = pick(r, -1, -1, -1, 200, 20), -1, 0
	}
}

func (s h2Settings) String() string {
	return fmt.Sprintf("streams %d, %d after %v, header list %d, window %d, credit after %v, SETTINGS after %v",
		s.streams, s.later, s.raise, s.list, s.window, s.late, s.first)
}

// firstWindow is the size of a window before any SETTINGS.
const firstWindow = 65535

// An h2Script is a connection.
type h2Script struct {
	c       *peerConn
	h       *host
	in      []byte
	out     bytes.Buffer
	frames  bytes.Buffer // what the framer reads
	fr      *http2.Framer
	dec     *hpack.Decoder
	enc     *hpack.Encoder
	block   bytes.Buffer // what enc writes
	preface bool

	said    int   // SETTINGS frames that were sent
	acks    int   // and acknowledged
	most    []int // streams that each of them allows; -1: any number
	streams map[uint32]*h2Stream
	highest uint32
	last    uint32 // that GOAWAY named
	leaving bool   // GOAWAY was sent
	closed  bool   // and the connection was closed behind the last answer

	send, recv int64 // windows: of the client for us, ours for the client
	initial    int64 // the client's initial one
	frame      int   // the largest frame that it takes

	useless time.Time // since when there is no stream, and may be none
}

// An h2Stream is one request.
type h2Stream struct {
	s          *h2Script
	id         uint32
	a          *attempt
	send, recv int64
	body       []byte // of the answer, what is left
	gzip       bool
	headers    []byte // a field block that goes on
	headed     bool   // the head of the answer has left
	cut        int    // bytes of the body that may leave; -1: all
	remote     bool   // the client has ended its side
	local      bool   // we have
	over       bool
	paced      bool // waits for the next piece
}

func newH2Script(c *peerConn) *h2Script {
	c.h2 = true
	s := &h2Script{c: c, h: c.h, streams: map[uint32]*h2Stream{}, frame: 16384,
		send: firstWindow, recv: firstWindow, initial: firstWindow}
	c.mux = s
	s.fr = http2.NewFramer(&s.out, &s.frames)
	s.fr.SetMaxReadFrameSize(16384)
	s.dec = hpack.NewDecoder(4096, nil)
	s.enc = hpack.NewEncoder(&s.block)
	if c.fate != "no settings" || c.h.w.stopped {
		c.h.w.AfterFunc(c.h.h2.first, s.hello)
	} else {
		c.dead = true
		c.h.did("connection %d sends no SETTINGS", c.n)
	}
	return s
}

// hello sends the first SETTINGS.
func (s *h2Script) hello() {
	w, set := s.h.w, s.h.h2
	all := []http2.Setting{}
	most := set.streams
	if set.raise > 0 && w.since() > set.raise {
		most = set.later
	} else if set.raise > 0 {
		w.AfterFunc(set.raise-w.since(), func() {
			if s.c.dead {
				return
			}
			s.fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(set.later)})
			s.said++
			s.most = append(s.most, set.later)
			s.flush()
		})
	}
	if most >= 0 {
		all = append(all, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(most)})
	}
	if set.list > 0 {
		all = append(all, http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: uint32(set.list)})
	}
	if set.window >= 0 {
		all = append(all, http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(set.window)})
	}
	early := bytes.Clone(s.out.Bytes())
	s.out.Reset()
	s.fr.WriteSettings(all...)
	s.out.Write(early)
	s.said++
	s.most = append(s.most, most)
	s.flush()
	if slices.Contains([]string{"goaway", "goaway low", "goaway early"}, s.c.fate) {
		at := time.Duration(0)
		if s.c.fate != "goaway early" {
			at = between(w.rng, 0, w.o.issue)
		}
		w.AfterFunc(at, s.goAway)
	}
}

// window is how much each stream may receive at first: what the client may know.
func (s *h2Script) window() int64 {
	if s.h.h2.window < 0 || s.acks == 0 {
		return firstWindow
	}
	return int64(s.h.h2.window)
}

// allowed is how many streams the client may have open; -1: any number.
func (s *h2Script) allowed() int {
	if s.acks == 0 {
		return -1
	}
	most := 0
	for _, n := range s.most[s.acks-1:] {
		if n < 0 {
			return -1
		}
		most = max(most, n)
	}
	return most
}

// beyond reports whether more streams are open than the latest SETTINGS allow, which the client may
// not know yet.
func (s *h2Script) beyond() bool {
	if s.said == 0 {
		return false
	}
	most := s.most[len(s.most)-1]
	return most >= 0 && len(s.streams) > most
}

// rooms is for how many more streams there is room.
func (s *h2Script) rooms() int {
	if most := s.allowed(); most >= 0 {
		return most - len(s.streams)
	}
	return 1 << 20
}

func (s *h2Script) flush() {
	if s.said == 0 { // SETTINGS come first
		return
	}
	if s.out.Len() > 0 && s.c.gone.IsZero() {
		s.c.top.write(bytes.Clone(s.out.Bytes()))
	}
	s.out.Reset()
}

// goAway has the connection take no more streams.
func (s *h2Script) goAway() {
	if s.leaving || !s.c.gone.IsZero() {
		return
	}
	s.leaving, s.last = true, s.highest
	if s.c.fate == "goaway low" && s.highest > 2 {
		s.last -= 2
	}
	s.spend()
	s.h.did("connection %d: GOAWAY with last stream %d", s.c.n, s.last)
	s.fr.WriteGoAway(s.last, http2.ErrCodeNo, nil)
	s.flush()
	for _, st := range s.all() {
		if st.id > s.last {
			st.a.notProcessed = true
			st.a.fails("not processed, by GOAWAY")
			st.close()
		}
	}
	s.leave()
}

// lone reports whether the client uses the connection for one request alone, which goes on.
func (s *h2Script) lone() bool {
	for _, st := range s.streams {
		if len(s.streams) == 1 && st.a != nil && (st.a.x.close || s.h.w.o.tr.DisableKeepAlives) && !st.a.x.isOver() {
			return true
		}
	}
	return false
}

// carries reports whether a request is on the connection, as far as the client can know, that is
// not over.
func (s *h2Script) carries() bool {
	return slices.ContainsFunc(s.h.w.requests, func(x *request) bool {
		n := len(x.attempts)
		return n > 0 && x.attempts[n-1].c == s.c && !x.attempts[n-1].back() && !x.isOver()
	})
}

// spend notes that no more requests will come.
func (s *h2Script) spend() {
	if s.c.spent.IsZero() {
		s.c.spent = s.h.w.Now()
	}
	s.c.free = time.Time{}
}

// leave closes a connection that is done.
func (s *h2Script) leave() {
	if s.leaving && len(s.streams) == 0 && !s.h.h2.keepsOpen && s.c.gone.IsZero() {
		s.h.w.AfterFunc(s.h.w.quick(), func() {
			s.closed = true
			s.c.top.close()
			s.c.close()
		})
	}
}

// all lists the open streams.
func (s *h2Script) all() (all []*h2Stream) {
	for _, st := range s.streams {
		all = append(all, st)
	}
	slices.SortFunc(all, func(a, b *h2Stream) int { return int(a.id) - int(b.id) })
	return all
}

func (s *h2Script) received(p []byte) {
	s.in = append(s.in, p...)
	if !s.preface {
		if len(s.in) < len(http2.ClientPreface) {
			return
		}
		if string(s.in[:len(http2.ClientPreface)]) != http2.ClientPreface {
			s.breaks(nil, "the connection begins with %q", s.in[:min(len(s.in), 20)])
		}
		s.in, s.preface = s.in[len(http2.ClientPreface):], true
	}
	for len(s.in) >= 9 {
		n := 9 + int(s.in[0])<<16 + int(s.in[1])<<8 + int(s.in[2])
		if len(s.in) < n {
			break
		}
		s.frames.Write(s.in[:n])
		s.in = s.in[n:]
		f, err := s.fr.ReadFrame()
		if err != nil {
			s.breaks(nil, "a frame cannot be read: %v", err)
			return
		}
		s.take(f)
	}
	s.flush()
}

func (s *h2Script) ended() {}

// breaks is for a client that does what it must not.
func (s *h2Script) breaks(x *request, format string, args ...any) {
	s.h.w.judge.broke(x, "peer's limits", "connection %d: "+format, append([]any{s.c.n}, args...)...)
}

func (s *h2Script) take(f http2.Frame) {
	switch f := f.(type) {
	case *http2.SettingsFrame:
		s.settings(f)
	case *http2.HeadersFrame:
		if st := s.streams[f.StreamID]; st != nil {
			s.trailers(st, f)
			return
		}
		if f.StreamID <= s.highest { // trailers of a stream that is closed
			s.dec.DecodeFull(f.HeaderBlockFragment())
			return
		}
		s.headers(f.StreamID, f.HeaderBlockFragment(), f.HeadersEnded(), f.StreamEnded())
	case *http2.ContinuationFrame:
		if st := s.streams[f.StreamID]; st != nil {
			st.headers = append(st.headers, f.HeaderBlockFragment()...)
			if f.HeadersEnded() {
				delete(s.streams, st.id)
				s.headers(st.id, st.headers, true, st.remote)
			}
		}
	case *http2.DataFrame:
		s.data(f)
	case *http2.RSTStreamFrame:
		if f.StreamID > s.highest {
			s.breaks(nil, "RST_STREAM for stream %d, which was not opened", f.StreamID)
		}
		if st := s.streams[f.StreamID]; st != nil {
			st.a.x.note("peer: the client has reset stream %d: %v", st.id, f.ErrCode)
			s.h.w.judge.left(st.a)
			st.close()
		}
	case *http2.WindowUpdateFrame:
		if f.StreamID == 0 {
			s.send += int64(f.Increment)
			for _, st := range s.all() {
				st.pump()
			}
		} else if st := s.streams[f.StreamID]; st != nil {
			st.send += int64(f.Increment)
			st.pump()
		}
	case *http2.PingFrame:
		if !f.IsAck() && !s.h.h2.pingless {
			s.fr.WritePing(true, f.Data)
		}
	case *http2.GoAwayFrame:
		s.spend()
		if f.ErrCode != http2.ErrCodeNo {
			s.h.w.judge.goneAway(s, f)
		}
	}
}

func (s *h2Script) settings(f *http2.SettingsFrame) {
	if f.IsAck() {
		if s.acks++; s.acks > s.said {
			s.breaks(nil, "SETTINGS that were not sent are acknowledged")
		}
		if s.acks == 1 && s.h.h2.window >= 0 {
			for _, st := range s.streams { // the client knows of the window only now
				st.recv += int64(s.h.h2.window) - firstWindow
			}
		}
		if s.acks == 1 {
			s.c.isReady()
			for _, st := range s.all() {
				st.open()
			}
		}
		s.update()
		return
	}
	f.ForeachSetting(func(v http2.Setting) error {
		switch v.ID {
		case http2.SettingInitialWindowSize:
			for _, st := range s.streams {
				st.send += int64(v.Val) - s.initial
			}
			s.initial = int64(v.Val)
		case http2.SettingMaxFrameSize:
			s.frame = int(v.Val)
		case http2.SettingHeaderTableSize:
			s.enc.SetMaxDynamicTableSizeLimit(v.Val)
			s.enc.SetMaxDynamicTableSize(v.Val)
		}
		return nil
	})
	s.fr.WriteSettingsAck()
}

// update notes whether a request has room.
func (s *h2Script) update() {
	most := s.allowed()
	c := s.c
	room := s.acks > 0 && c.spent.IsZero() && !c.dead && c.gone.IsZero() && (most < 0 || len(s.streams) < most)
	switch {
	case !room:
		c.free = time.Time{}
	case c.free.IsZero():
		c.free = s.h.w.Now()
	}
	switch none := s.acks > 0 && most == 0 && len(s.streams) == 0; {
	case !none:
		s.useless = time.Time{}
	case s.useless.IsZero() && !c.dead: // else the client may have a stream that is not known here
		s.useless = s.h.w.Now()
	}
}

// serves reports whether a request may wait for the connection: it allows streams, or has not
// allowed any for a short time only.
func (s *h2Script) serves(now time.Time, slack time.Duration) bool {
	return s.useless.IsZero() || now.Sub(s.useless) <= uselessBound+slack
}

func (s *h2Script) headers(id uint32, block []byte, whole, last bool) {
	s.highest = max(s.highest, id)
	st := &h2Stream{s: s, id: id, send: s.initial, recv: s.window(), remote: last, cut: -1}
	if s.streams[id] = st; !whole {
		st.headers = slices.Clone(block)
		return
	}
	fields, err := s.dec.DecodeFull(block)
	if err != nil {
		s.breaks(nil, "a field block of stream %d: %v", id, err)
		return
	}
	head, size := http.Header{}, 0
	for _, f := range fields {
		head.Add(f.Name, f.Value)
		size += int(f.Size())
	}
	path := head.Get(":path")
	if s.leaving && id > s.last && s.h.w.elsewhere(path) {
		st.close() // the client knows already that it was not processed
		return
	}
	a := s.c.arrive(path, id)
	if a == nil {
		return
	}
	w := s.h.w
	st.a, st.gzip = a, head.Get("accept-encoding") == "gzip"
	length := int64(-1)
	if v := head.Get("content-length"); v != "" {
		length, _ = strconv.ParseInt(v, 10, 64)
	} else if last {
		length = 0
	}
	a.x.checkHead(head.Get(":method"), head, length)
	if a.x.close || w.o.tr.DisableKeepAlives {
		s.spend()
	}
	s.update()
	switch most := s.allowed(); {
	case s.c.dead: // nothing can be said any more
	case s.leaving && id > s.last:
		a.notProcessed = true
		a.fails("not processed, by GOAWAY")
		st.close()
		return
	case most >= 0 && len(s.streams) > most:
		s.breaks(a.x, "%d streams are open, %d are allowed", len(s.streams), most)
		a.notProcessed = true
		a.fails("refused")
		st.reset(http2.ErrCodeRefusedStream)
		return
	case s.beyond(), a.plan.refuse && !w.stopped:
		a.notProcessed = true
		a.fails("refused")
		st.reset(http2.ErrCodeRefusedStream)
		return
	case s.h.h2.list > 0 && size > s.h.h2.list:
		a.fails("a header list of %d bytes, %d are allowed", size, s.h.h2.list)
		if s.acks > 0 {
			s.breaks(a.x, "a header list of %d bytes, %d are allowed", size, s.h.h2.list)
		}
		if s.h.h2.whole && s.acks > 0 {
			a.notProcessed, s.leaving, s.last = true, true, id-1
			s.c.end("the peer ended it, for a header list that is too large")
			s.fr.WriteGoAway(id-1, http2.ErrCodeEnhanceYourCalm, nil)
			s.out.WriteTo(writer{s.c.top})
			s.c.top.close()
			s.c.close()
			return
		}
		st.reset(http2.ErrCodeProtocol)
		return
	}
	if last {
		a.plan.early = false
		a.complete(nil)
	} else if head.Get("expect") == "100-continue" && a.plan.goOn >= 0 {
		w.AfterFunc(a.plan.goOn, func() {
			if !st.over && !st.headed && a.bodyAt.IsZero() && s.said > 0 {
				st.fields(false, ":status", "100")
				if s.flush(); !s.c.dead {
					a.told100 = w.Now()
				}
			}
		})
	}
	if !last {
		st.open()
	}
	if last || a.plan.early {
		st.answerLater()
	}
}

type writer struct{ pipe }

func (w writer) Write(p []byte) (int, error) { w.pipe.write(bytes.Clone(p)); return len(p), nil }

func (s *h2Script) trailers(st *h2Stream, f *http2.HeadersFrame) {
	fields, err := s.dec.DecodeFull(f.HeaderBlockFragment())
	if err != nil || !f.HeadersEnded() || !f.StreamEnded() || st.remote || st.a == nil {
		s.breaks(nil, "wrong trailers for stream %d: %v", st.id, err)
		return
	}
	trailer := http.Header{}
	for _, f := range fields {
		trailer.Add(f.Name, f.Value)
	}
	st.complete(trailer)
}

func (s *h2Script) data(f *http2.DataFrame) {
	n := int64(f.Length)
	if s.recv -= n; s.recv < 0 && n > 0 {
		s.breaks(nil, "%d bytes of DATA above the connection's window", -s.recv)
	}
	if f.StreamID > s.highest {
		s.breaks(nil, "DATA for stream %d, which was not opened", f.StreamID)
	}
	st := s.streams[f.StreamID]
	if st == nil {
		s.credit(nil, n)
		return
	}
	if st.remote {
		s.breaks(st.a.x, "DATA behind the end of stream %d", st.id)
	}
	if st.recv -= n; st.recv < 0 && n > 0 {
		s.breaks(st.a.x, "%d bytes of DATA above the window of stream %d", -st.recv, st.id)
	}
	st.a.data(f.Data())
	if f.StreamEnded() {
		st.complete(nil)
		s.credit(nil, n)
		return
	}
	s.credit(st, n)
}

// credit raises windows, at once or later. A stream whose plan is to stop reading gets none.
func (s *h2Script) credit(st *h2Stream, n int64) {
	grant := func() {
		if !s.c.gone.IsZero() || n == 0 {
			return
		}
		s.recv += n
		s.fr.WriteWindowUpdate(0, uint32(n))
		if st != nil && !st.over && !st.remote && !(st.a.plan.stops && st.headed) {
			st.recv += n
			s.fr.WriteWindowUpdate(st.id, uint32(n))
		}
		s.flush()
	}
	if d := s.h.h2.late; d > 0 {
		s.h.w.AfterFunc(d, grant)
	} else {
		grant()
	}
}

// open gives a small first window more room, in time.
func (st *h2Stream) open() {
	s := st.s
	if s.h.h2.window < 0 || s.h.h2.window >= firstWindow || s.acks == 0 || st.remote {
		return
	}
	s.h.w.AfterFunc(s.h.h2.late, func() {
		if !st.over && !st.remote && s.c.gone.IsZero() {
			st.recv += 20_000
			s.fr.WriteWindowUpdate(st.id, 20_000)
			s.flush()
		}
	})
}

func (st *h2Stream) complete(trailer http.Header) {
	st.remote = true
	st.a.complete(trailer)
	if !st.a.plan.early {
		st.answerLater()
	}
	st.closeIfDone()
}

// fields writes HEADERS.
func (st *h2Stream) fields(last bool, list ...string) {
	s := st.s
	s.block.Reset()
	for i := 0; i < len(list); i += 2 {
		s.enc.WriteField(hpack.HeaderField{Name: list[i], Value: list[i+1]})
	}
	s.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: st.id, BlockFragment: s.block.Bytes(), EndStream: last,
		EndHeaders: true})
}

func (st *h2Stream) answerLater() {
	st.s.h.w.AfterFunc(st.a.plan.delay, st.answer)
}

func (st *h2Stream) answer() {
	a, plan, s := st.a, st.a.plan, st.s
	if st.over || st.headed || !s.c.gone.IsZero() {
		return
	}
	st.body = a.encoded(st.gzip)
	if a.bodiless() {
		st.body = nil
	}
	if plan.cut != "" && plan.cutAt == 0 && plan.cut != "short" {
		st.ends()
		return
	}
	for range plan.interim {
		st.fields(false, ":status", "103", "x-hint", "hint")
	}
	list := []string{":status", strconv.Itoa(plan.status), "x-id", strconv.Itoa(a.x.id),
		"x-pad", string(letters[:plan.pad])}
	if plan.gzip {
		list = append(list, "content-encoding", "gzip")
	}
	if !plan.chunked && plan.status != 204 || plan.cut == "short" {
		list = append(list, "content-length", strconv.Itoa(len(st.body)))
	}
	size := 0
	for i := 0; i < len(list); i += 2 {
		size += len(list[i]) + len(list[i+1]) + 32
	}
	a.x.w.judge.planned(a, size)
	if plan.cut == "short" && len(st.body) < 2 {
		plan.cut = ""
	}
	if plan.cut != "" {
		if st.cut = int(plan.cutAt * float64(len(st.body))); plan.cut == "short" {
			st.cut = min(st.cut, len(st.body)-1)
		}
	}
	st.headed = true
	a.began = s.h.w.Now()
	plan.trailer = plan.trailer && !a.bodiless() && plan.cut == ""
	last := len(st.body) == 0 && !plan.trailer && plan.cut == ""
	st.fields(last, list...)
	if last {
		st.ended()
	} else {
		st.pump()
	}
	s.flush()
}

// pump writes DATA as far as windows, pace and plan allow.
func (st *h2Stream) pump() {
	if !st.headed || st.local || st.over || st.paced || !st.s.c.gone.IsZero() {
		return
	}
	a, plan, s := st.a, st.a.plan, st.s
	for {
		left := len(st.body)
		if st.cut >= 0 {
			left = st.cut - a.sent
		}
		if left == 0 {
			break
		}
		n := int(min(int64(left), st.send, s.send, int64(s.frame), int64(max(plan.piece, 16))))
		if n <= 0 {
			s.flush()
			return
		}
		last := n == len(st.body) && !plan.trailer && st.cut < 0
		s.fr.WriteData(st.id, last, st.body[:n])
		st.body = st.body[n:]
		a.sent += n
		st.send -= int64(n)
		s.send -= int64(n)
		if last {
			st.ended()
			s.flush()
			return
		}
		if plan.gap > 0 {
			st.paced = true
			s.h.w.AfterFunc(plan.gap, func() { st.paced = false; st.pump() })
			s.flush()
			return
		}
	}
	switch {
	case st.cut >= 0:
		st.ends()
	case plan.trailer:
		st.fields(true, "x-after", strconv.Itoa(a.x.id))
		st.ended()
	default:
		s.fr.WriteData(st.id, true, nil)
		st.ended()
	}
	s.flush()
}

// ends is what the plan has in place of an end in order.
func (st *h2Stream) ends() {
	a, s := st.a, st.s
	st.local = a.plan.cut != "hang"
	switch a.plan.cut {
	case "hang":
		st.paced = true // for ever
		a.fails("the answer stops behind %d bytes of the body", a.sent)
	case "rst":
		a.fails("RST_STREAM behind %d bytes of the body", a.sent)
		st.reset(http2.ErrCodeInternal)
	case "short":
		a.fails("ended behind %d bytes of the body, fewer than Content-Length", a.sent)
		s.fr.WriteData(st.id, true, nil)
		st.closeIfDone()
	default:
		a.fails("reset behind %d bytes of the body", a.sent)
		s.c.end(resetByPeer)
		s.c.base.Reset()
	}
}

// ended is the end of an answer.
func (st *h2Stream) ended() {
	if st.s.flush(); st.s.c.dead {
		st.paced = true // for ever: the client does not know
		st.a.fails("the connection stalls in the answer")
		return
	}
	st.local = true
	st.a.answered = st.s.h.w.Now()
	st.a.x.note("peer: the answer is complete, with %d bytes", st.a.sent)
	if !st.remote && st.a.plan.stops { // RFC 9113 section 8.1
		st.a.x.note("peer: it wants no more of the request")
		st.reset(http2.ErrCodeNo)
		return
	}
	st.closeIfDone()
}

func (st *h2Stream) closeIfDone() {
	if st.local && st.remote && !st.s.c.dead { // the client does not know, if it is
		st.close()
	}
}

func (st *h2Stream) reset(code http2.ErrCode) {
	if st.s.c.dead {
		st.local, st.paced = false, true
		return
	}
	st.s.fr.WriteRSTStream(st.id, code)
	st.close()
	st.s.flush()
}

func (st *h2Stream) close() {
	st.over = true
	delete(st.s.streams, st.id)
	st.s.update()
	st.s.leave()
}

// lose is the end of the connection.
func (s *h2Script) lose(why string) {
	for _, st := range s.all() {
		switch {
		case st.a == nil:
		case why != "":
			st.a.fails("%s", why)
		default:
			st.a.x.note("peer: the client has ended connection %d", s.c.n)
			s.h.w.judge.left(st.a)
		}
		st.over = true
	}
}
