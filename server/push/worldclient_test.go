package push_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/fossil"
	"github.com/myriad-go/myriad/server/push/internal/prototest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
)

// This file holds the clients of a world that speak the Centrifuge protocol over WebSockets.

// A subscription is what a client of any door has of one channel. Its fields of the log are
// indexes in the channelLog.
type subscription struct {
	w       *world
	who     string
	channel string
	live    bool // confirmed, and not ended
	asked   bool // a command about it is under way
	server  bool // the server has made it
	wanted  bool // the client asks for it again when it comes back

	last  int // the last entry that was received or passed over
	begun bool
	maybe int // entries below this may be missing as long as it has not begun

	recovers   bool // it has a position
	recovering bool // what it has missed is coming
	at         push.Position
	filter     string // entries without this tag are left out
	delta      bool
	base       []byte // of deltas
	gaps       int    // entries that a policy has dropped
	drops      bool   // the policy may drop
	notices    bool
	there      map[string]bool // clients that have joined since, by the notices
}

func (w *world) newSubscription(who, channel string) *subscription {
	rules := w.rules(channel)
	return &subscription{w: w, who: who, channel: channel, last: -1, drops: rules.Slow != push.SlowDisconnect,
		there: map[string]bool{}}
}

// begin notes that the client sends the command for it.
func (s *subscription) begin() { s.last, s.begun = len(s.w.bus.log(s.channel).list)-1, false }

// confirmed notes that the answer has come: from here on nothing may be missing.
func (s *subscription) confirmed() {
	s.live, s.asked, s.begun = true, false, false
	s.maybe = len(s.w.bus.log(s.channel).list)
	s.base = nil
	clear(s.there)
}

// from continues behind a position, whether there is an entry for it or not.
func (s *subscription) from(at push.Position) {
	s.at, s.recovers = at, true
	for i, p := range s.w.bus.log(s.channel).list {
		if p.at.Epoch == at.Epoch && p.at.Offset <= at.Offset && p.at.Epoch != "" {
			s.last = max(s.last, i)
		}
	}
}

// got checks a publication that has been received, given its id.
func (s *subscription) got(id int, at push.Position) {
	s.w.pushes++
	l := s.w.bus.log(s.channel)
	i, ok := l.index[id]
	switch {
	case !ok:
		s.w.fail("%s got %d in %s, which was not published there", s.who, id, s.channel)
		return
	case !s.live:
		s.w.fail("%s got %d in %s without a subscription", s.who, id, s.channel)
		return
	case i <= s.last:
		s.w.fail("%s got %d in %s, entry %d, behind entry %d", s.who, id, s.channel, i, s.last)
		return
	}
	for j := s.last + 1; j < i; j++ {
		if !s.mayMiss(j) {
			s.w.fail("%s got %d in %s and has missed %d (entries %d and %d, %d when it began)", s.who, id, s.channel,
				l.list[j].id, i, j, s.maybe)
			return
		}
	}
	if s.filter != "" && l.list[i].tags["k"] != s.filter {
		s.w.fail("%s got %d in %s, which its filter leaves out", s.who, id, s.channel)
	}
	if want := l.list[i].at; s.recovers && at != want && at.Offset != want.Offset {
		s.w.fail("%s got %d in %s at %v, not at %v", s.who, id, s.channel, at, want)
	}
	s.last, s.begun = i, true
	if l.list[i].at.Epoch != "" {
		s.at = l.list[i].at
	}
}

// mayMiss reports whether the client need not get an entry.
func (s *subscription) mayMiss(i int) bool {
	p := &s.w.bus.log(s.channel).list[i]
	switch {
	case s.filter != "" && p.tags["k"] != s.filter:
		return true
	case s.recovering:
		return p.at.Epoch != s.at.Epoch
	case i < s.maybe && (!s.recovers && !s.begun || s.recovers && p.at.Epoch != s.at.Epoch):
		return true // published while the subscription was made
	case s.drops:
		s.gaps++
		return true
	}
	return false
}

// complete checks that nothing is missing now that the world is quiet.
func (s *subscription) complete() {
	l := s.w.bus.log(s.channel)
	for i := s.last + 1; i < len(l.list); i++ {
		if !s.mayMiss(i) {
			s.w.fail("%s has not got %d in %s, entry %d of %d; its last is %d, it began at %d", s.who, l.list[i].id,
				s.channel,
				i, len(l.list), s.last, s.maybe)
			return
		}
		if s.drops && i == len(l.list)-1 && i >= s.maybe && !(s.filter != "" && l.list[i].tags["k"] != s.filter) {
			s.w.fail("%s has not got the latest, %d, in %s", s.who, l.list[i].id, s.channel)
		}
	}
	s.last = len(l.list) - 1
}

// A socketClient speaks the Centrifuge protocol over a WebSocket. It reconnects as client libraries
// do, and is as slow or as careless as the seed says.
type socketClient struct {
	w     *world
	name  string
	user  string
	proto bool
	seeks bool // it asks for deltas

	stream  bool     // it reads a response, and sends its commands by requests
	secret  string   // of its session, then
	waiting []string // commands that wait for the request before to be answered
	sending bool
	to      myriadAddr
	body    []byte // of the response: what is not a whole line yet

	peer     *sim.Peer // nil: not connected
	in       []byte
	upgraded bool
	id       string // of the client, once connected
	nextID   int
	asked    []command
	subs     map[string]*subscription
	tokenEnd time.Time // zero: never
	silent   bool      // does not answer pings
	careless bool      // does not renew its token
	stopped  bool      // does not read
	backAt   time.Time
	gone     bool   // stays away
	closed   string // why the server has closed the last connection
	opened   time.Time
}

// A command is one whose reply has not come.
type command struct {
	id      int
	kind    string
	channel string
	number  int // of a publication
}

func (c command) String() string { return fmt.Sprintf("%d %s %s", c.id, c.kind, c.channel) }

// A said is what the server says.
type said struct {
	ID    int `json:"id"`
	Error *struct {
		Code    int
		Message string
	}
	Connect *struct {
		Client, Session string
		TTL             int
		Subs            map[string]*saidSubscribed
	}
	Subscribe     *saidSubscribed
	Unsubscribe   *struct{}
	Publish       *struct{}
	Presence      *struct{ Presence map[string]json.RawMessage }
	PresenceStats *struct {
		Clients int `json:"num_clients"`
	} `json:"presence_stats"`
	History *struct{ Publications []saidPublication }
	Ping    *struct{}
	RPC     *struct{ Data json.RawMessage }
	Refresh *struct{ TTL int }
	Push    *struct {
		Channel     string
		Pub         *saidPublication
		Join, Leave *struct{ Info struct{ Client string } }
		Unsubscribe *struct{ Code int }
		Subscribe   *saidSubscribed
		Refresh     *struct{ TTL int }
		Disconnect  *struct{ Code int }
	}
}

type saidSubscribed struct {
	Recoverable   bool
	Epoch         string
	Offset        uint64
	Recovered     bool
	WasRecovering bool `json:"was_recovering"`
	Delta         bool
	Publications  []saidPublication
	Expires       bool
	TTL           int
}

type saidPublication struct {
	Data   json.RawMessage
	Offset uint64
	Delta  bool
	Tags   map[string]string
}

const worldProtocol = `
Error code=1:uint32 message=2:string temporary=3:bool
Command id=1:uint32 connect=4:ConnectRequest subscribe=5:SubscribeRequest unsubscribe=6:Channel
  publish=7:PublishRequest presence=8:Channel presence_stats=9:Channel history=10:HistoryRequest ping=11:Empty
  send=12:Data rpc=13:RPCRequest refresh=14:RefreshRequest
Reply id=1:uint32 error=2:Error push=4:Push connect=5:ConnectResult subscribe=6:SubscribeResult
  unsubscribe=7:Empty publish=8:Empty presence=9:PresenceResult presence_stats=10:PresenceStatsResult
  history=11:HistoryResult ping=12:Empty rpc=13:Data refresh=14:RefreshResult
Push channel=2:string pub=4:Publication join=5:Join leave=6:Join unsubscribe=7:Unsubscribe message=8:Data
  subscribe=9:Subscribe disconnect=11:Disconnect refresh=12:RefreshResult
ClientInfo user=1:string client=2:string conn_info=3:bytes chan_info=4:bytes
Publication data=4:bytes info=5:ClientInfo offset=6:uint64 tags=7:%string delta=8:bool
Join info=1:ClientInfo
Unsubscribe code=2:uint32 reason=3:string
Subscribe recoverable=1:bool epoch=4:string offset=5:uint64 positioned=6:bool data=7:bytes
Data data=1:bytes
Empty
Disconnect code=1:uint32 reason=2:string reconnect=3:bool
ConnectRequest token=1:string data=2:bytes
ConnectResult client=1:string version=2:string expires=3:bool ttl=4:uint32 data=5:bytes subs=6:%SubscribeResult
  ping=7:uint32 pong=8:bool session=9:string node=10:string
RefreshRequest token=1:string
RefreshResult client=1:string version=2:string expires=3:bool ttl=4:uint32
SubscribeRequest channel=1:string token=2:string recover=3:bool epoch=6:string offset=7:uint64
  join_leave=11:bool delta=12:string tf=13:FilterNode flag=14:int64
SubscribeResult expires=1:bool ttl=2:uint32 recoverable=3:bool epoch=6:string publications=7:*Publication
  recovered=8:bool offset=9:uint64 positioned=10:bool data=11:bytes was_recovering=12:bool delta=13:bool
Channel channel=1:string
PublishRequest channel=1:string data=2:bytes
PresenceResult presence=1:%ClientInfo
PresenceStatsResult num_clients=1:uint32 num_users=2:uint32
StreamPosition offset=1:uint64 epoch=2:string
HistoryRequest channel=1:string limit=7:int32 since=8:StreamPosition reverse=9:bool
HistoryResult publications=1:*Publication epoch=2:string offset=3:uint64
RPCRequest data=1:bytes method=2:string
FilterNode op=1:string key=2:string cmp=3:string val=4:string vals=5:*string nodes=6:*FilterNode
`

var worldMessages protoreflect.MessageDescriptors

func protocolMessages(t *testing.T) protoreflect.MessageDescriptors {
	if worldMessages == nil {
		worldMessages = prototest.Messages(t, worldProtocol)
	}
	return worldMessages
}

func (w *world) newSocket(n int) *socketClient {
	c := &socketClient{w: w, name: fmt.Sprintf("socket %d", n), user: w.user(), proto: w.random.IntN(3) == 0,
		seeks: w.random.IntN(2) == 0, silent: w.random.IntN(12) == 0, careless: w.random.IntN(4) == 0,
		subs: map[string]*subscription{}}
	if !c.proto {
		c.stream = w.random.IntN(4) == 0
	}
	return c
}

// open connects, and subscribes again to what the client had.
func (c *socketClient) open() {
	w := c.w
	c.peer, c.in, c.upgraded, c.id, c.asked, c.stopped = w.Dial(c.address()), nil, false, "", nil, false
	c.closed, c.tokenEnd, c.opened = "", time.Time{}, w.Now()
	for _, s := range c.subs {
		s.live, s.asked = false, false
	}
	c.secret, c.waiting, c.sending, c.body = "", nil, false, nil
	path := "/connection/websocket"
	if c.proto {
		path += "?format=protobuf"
	}
	if !c.stream {
		c.peer.Write([]byte("GET " + path + " HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"))
	}
	token := ""
	if w.o.tokens {
		c.tokenEnd = w.Now().Add(w.o.tokenLife).Truncate(time.Second)
		claims := jwt.MapClaims{"sub": c.user, "exp": c.tokenEnd.Unix()}
		if w.random.IntN(3) == 0 {
			claims["channels"] = []string{"a:1", "2"}[:1+w.random.IntN(2)]
		}
		token = w.sign(claims)
	}
	w.note("%s opens, as %s; Protobuf %v, a stream %v", c.name, c.user, c.proto, c.stream)
	frame := []string{c.command("connect", "", fmt.Sprintf(`"connect":{"token":%q}`, token))}
	for _, name := range sortedKeys(c.subs) {
		if s := c.subs[name]; s.server || !s.wanted {
			delete(c.subs, name)
		}
	}
	if len(c.subs)+1 <= w.seam.Limits().Commands {
		for _, name := range sortedKeys(c.subs) {
			frame = append(frame, c.subscribeCommand(c.subs[name]))
		}
	}
	if c.stream {
		body := strings.Join(frame, "\n")
		c.peer.Write(fmt.Appendf(nil,
			"POST /connection/http_stream HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n%s",
			len(body), body))
		return
	}
	c.send(frame...)
}

// address chooses a node, to which requests of the same client go, too.
func (c *socketClient) address() myriadAddr {
	c.to = c.w.node()
	return c.to
}

// emulate sends what waits, unless a request is under way: requests may overtake each other.
func (c *socketClient) emulate() {
	if c.sending || len(c.waiting) == 0 || c.secret == "" {
		return
	}
	body, err := json.Marshal(map[string]string{"session": c.secret, "data": c.waiting[0]})
	if err != nil {
		c.w.t.Fatal(err)
	}
	c.waiting, c.sending = c.waiting[1:], true
	mine := c.peer
	c.w.callTo(c.to, "emulation", "/emulation", string(body), func(status int, answer string) {
		if c.peer != mine {
			return // it has connected again
		}
		if c.sending = false; status == 204 {
			c.emulate()
			return
		}
		if status != 404 && status != 503 {
			c.w.fail("%s: a request was answered %d %s", c.name, status, answer)
		}
		c.lose(fmt.Sprintf("a request was answered %d", status))
	}, func() {
		if c.peer == mine {
			c.lose("a request was lost")
		}
	})
}

// lines takes the lines of a response.
func (c *socketClient) lines() {
	for c.peer != nil {
		size, rest, found := bytes.Cut(c.in, []byte("\r\n"))
		n, err := strconv.ParseUint(string(size), 16, 32)
		if !found || err == nil && len(rest) < int(n)+2 {
			return
		}
		if err != nil {
			c.w.fail("%s got the chunk %q", c.name, size)
			return
		}
		c.body, c.in = append(c.body, rest[:n]...), rest[n+2:]
		for c.peer != nil {
			line, after, found := bytes.Cut(c.body, []byte("\n"))
			if !found {
				break
			}
			c.body = after
			c.say(line)
		}
		if n == 0 && c.peer != nil {
			c.lose("the response has ended")
		}
	}
}

func sortedKeys[T any](m map[string]T) (list []string) {
	for name := range m {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

func (w *world) sign(claims jwt.MapClaims) string {
	return tokentest.Sign(w.t, jwt.SigningMethodHS256, []byte(worldSecret), claims)
}

// command notes a command, and returns it.
func (c *socketClient) command(kind, channel, body string) string {
	c.nextID++
	c.asked = append(c.asked, command{id: c.nextID, kind: kind, channel: channel})
	return fmt.Sprintf(`{"id":%d,%s}`, c.nextID, body)
}

func (c *socketClient) subscribeCommand(s *subscription) string {
	w := c.w
	ask := map[string]any{"channel": s.channel}
	if s.recovers && s.at.Epoch != "" {
		ask["recover"], ask["epoch"], ask["offset"] = true, s.at.Epoch, s.at.Offset
	}
	if s.notices {
		ask["join_leave"] = true
	}
	if c.seeks {
		ask["delta"] = "fossil"
	}
	if s.filter != "" {
		ask["tf"] = map[string]any{"key": "k", "cmp": "eq", "val": s.filter}
	}
	if w.rules(s.channel).SubscribeToken && w.random.IntN(8) != 0 {
		claims := jwt.MapClaims{"sub": c.user, "channel": s.channel}
		if w.random.IntN(2) == 0 {
			claims["exp"] = w.Now().Add(w.o.tokenLife).Unix()
		}
		if w.random.IntN(2) == 0 {
			claims["allow"] = []string{"pub"}
		}
		ask["token"] = w.sign(claims)
	}
	text, _ := json.Marshal(ask)
	s.asked = true
	s.begin0()
	return c.command("subscribe", s.channel, `"subscribe":`+string(text))
}

// begin0 is begin for a subscription that may continue where it was.
func (s *subscription) begin0() {
	if !s.recovers {
		s.begin()
	}
}

// send sends commands in one message.
func (c *socketClient) send(commands ...string) {
	if c.stream {
		c.waiting = append(c.waiting, strings.Join(commands, "\n"))
		c.emulate()
		return
	}
	if c.proto {
		var all []byte
		for _, text := range commands {
			m, err := prototest.Message(protocolMessages(c.w.t).ByName("Command"), []byte(text))
			if err != nil {
				c.w.t.Fatalf("%s: %v", text, err)
			}
			p, err := proto.Marshal(m)
			if err != nil {
				c.w.t.Fatal(err)
			}
			all = append(protowire.AppendVarint(all, uint64(len(p))), p...)
		}
		c.peer.Write(clientFrame(2, all))
		return
	}
	c.peer.Write(clientFrame(1, []byte(strings.Join(commands, "\n"))))
}

// clientFrame is a frame as clients send it, with a key of zeros, which changes nothing.
func clientFrame(op byte, p []byte) []byte {
	b := []byte{0x80 | op, 0x80 | byte(len(p))}
	if len(p) > 125 {
		b = binary.BigEndian.AppendUint16([]byte{0x80 | op, 0x80 | 126}, uint16(len(p)))
	}
	return append(append(b, 0, 0, 0, 0), p...)
}

// serverFrame returns the first frame of in, or ok is false.
func serverFrame(in []byte) (op byte, payload, rest []byte, ok bool) {
	if len(in) < 2 {
		return
	}
	n, head := int(in[1]&0x7f), 2
	switch {
	case n == 126 && len(in) >= 4:
		n, head = int(binary.BigEndian.Uint16(in[2:])), 4
	case n == 127 && len(in) >= 10:
		n, head = int(binary.BigEndian.Uint64(in[2:])), 10
	case n >= 126:
		return
	}
	if len(in) < head+n {
		return
	}
	return in[0] & 0xf, in[head : head+n], in[head+n:], true
}

// step takes what has come.
func (c *socketClient) step() {
	if c.peer == nil {
		if !c.gone && !c.w.stopping && !c.backAt.IsZero() && !c.w.Now().Before(c.backAt) {
			c.backAt = time.Time{}
			c.open()
		}
		return
	}
	c.in = append(c.in, c.peer.TakeReceived()...)
	if !c.upgraded {
		head, rest, found := bytes.Cut(c.in, []byte("\r\n\r\n"))
		want := "HTTP/1.1 101 "
		if c.stream {
			want = "HTTP/1.1 200 "
		}
		if found && !bytes.HasPrefix(head, []byte(want)) {
			line, _, _ := strings.Cut(string(head), "\r\n")
			if !c.w.maySay(line) {
				c.w.fail("%s was answered %q", c.name, line)
			}
			c.lose("answered " + line)
			return
		}
		if found {
			c.in, c.upgraded = rest, true
		}
	}
	if c.upgraded && c.stream {
		c.lines()
	}
	for c.upgraded && !c.stream && c.peer != nil {
		op, payload, rest, ok := serverFrame(c.in)
		if !ok {
			break
		}
		c.in = rest
		c.frame(op, payload)
	}
	if c.peer == nil {
		return
	}
	if c.peer.Ended() || c.peer.Closed() {
		c.lose(fmt.Sprintf("ended: %v", c.peer.Err()))
		return
	}
	c.renew()
	c.checkEnd()
}

// maySay reports whether a request to connect may be answered so.
func (w *world) maySay(line string) bool {
	switch {
	case strings.HasPrefix(line, "HTTP/1.1 503"):
		return w.stopping || w.shut
	case strings.HasPrefix(line, "HTTP/1.1 429"):
		return w.server != nil && w.o.config.Rates != (push.Rates{})
	}
	return false
}

// lose notes that the connection is over.
func (c *socketClient) lose(why string) {
	c.w.note("%s: %s", c.name, why)
	c.peer.Close()
	c.peer = nil
	for _, name := range sortedKeys(c.subs) {
		c.subs[name].live = false
	}
	c.backAt = c.w.Now().Add(time.Duration(c.w.random.IntN(2000)) * time.Millisecond)
}

// checkEnd checks that the connection does not outlive its token.
func (c *socketClient) checkEnd() {
	w := c.w
	if c.tokenEnd.IsZero() || w.stopping || w.shut || c.stopped || c.id == "" || w.o.faults.MaxDelay >= 0 ||
		w.o.hooked() {
		return
	}
	if late := w.Now().Sub(c.tokenEnd); late > w.seam.Timing().Refresh+5*time.Second {
		w.fail("%s is connected %v behind the end of its token", c.name, late)
		c.tokenEnd = time.Time{}
	}
}

// renew brings a new token when the old one is about to end.
func (c *socketClient) renew() {
	w := c.w
	if c.tokenEnd.IsZero() || c.careless || c.id == "" || w.stopping || w.Now().Before(c.tokenEnd.Add(-time.Second)) ||
		slices.ContainsFunc(c.asked, func(one command) bool { return one.kind == "refresh" }) {
		return
	}
	end := w.Now().Add(w.o.tokenLife).Truncate(time.Second)
	c.send(c.command("refresh", "", fmt.Sprintf(`"refresh":{"token":%q}`, w.sign(jwt.MapClaims{"sub": c.user,
		"exp": end.Unix()}))))
}

// frame takes one frame.
func (c *socketClient) frame(op byte, payload []byte) {
	switch op {
	case 8:
		code := 0
		if len(payload) >= 2 {
			code = int(binary.BigEndian.Uint16(payload))
		}
		c.closedWith(code, string(payload[min(len(payload), 2):]))
	case 1:
		if c.proto {
			c.w.fail("%s got text: %q", c.name, payload)
		}
		for line := range bytes.SplitSeq(payload, []byte("\n")) {
			c.say(line)
		}
	case 2:
		for len(payload) > 0 && c.peer != nil {
			n, size := protowire.ConsumeVarint(payload)
			if size < 0 || int(n) > len(payload)-size {
				c.w.fail("%s got half a message", c.name)
				return
			}
			m := dynamicpb.NewMessage(protocolMessages(c.w.t).ByName("Reply"))
			if err := proto.Unmarshal(payload[size:size+int(n)], m); err != nil {
				c.w.fail("%s: %v", c.name, err)
				return
			}
			text, _ := json.Marshal(prototest.Object(m, func(name string, p []byte) (string, any) {
				return name, "hex:" + hex.EncodeToString(p)
			}))
			payload = payload[size+int(n):]
			c.say(text)
		}
	}
}

// closedWith checks a close frame.
func (c *socketClient) closedWith(code int, reason string) {
	w := c.w
	may := false
	switch code {
	case 3001:
		may = w.stopping || w.shut
	case 3005:
		may = w.o.tokens || w.hooks.expires || w.hooks.expired[c.id]
	case 3008:
		may = true // it may have stopped reading, or its network is slow
	case 3010:
		may = true
	case 3012:
		may = true
	case 3501:
		may = len(c.asked) > w.seam.Limits().Commands
	case 3503, 4000, 4500:
		may = true // by the API
	case 3004:
		may = w.o.hooked()
	case 4100, 4600:
		may = w.o.badHooks
	}
	if !may {
		w.fail("%s was closed with %d %q; it waits for %v", c.name, code, reason, c.asked)
	}
	c.closed = fmt.Sprintf("closed %d %s", code, reason)
	c.lose(c.closed)
}

// say takes one reply or push.
func (c *socketClient) say(line []byte) {
	w := c.w
	var s said
	if err := json.Unmarshal(line, &s); err != nil {
		w.fail("%s: %v in %q", c.name, err, line)
		return
	}
	switch {
	case s.Push != nil:
		c.pushed(&s)
	case s.ID == 0:
		if string(line) != "{}" {
			w.fail("%s got %q", c.name, line)
		}
		if !c.silent {
			c.pong()
		}
	default:
		c.replied(&s, line)
	}
}

func (c *socketClient) pong() {
	if c.stream {
		c.send("{}")
		return
	}
	if c.proto {
		c.peer.Write(clientFrame(2, []byte{0}))
		return
	}
	c.peer.Write(clientFrame(1, []byte("{}")))
}

func (c *socketClient) pushed(s *said) {
	w, p := c.w, s.Push
	w.pushes++
	if c.id == "" && p.Disconnect == nil {
		w.fail("%s got a push before the answer to connect", c.name)
	}
	sub := c.subs[p.Channel]
	switch {
	case p.Disconnect != nil:
		c.closedWith(p.Disconnect.Code, "")
	case p.Refresh != nil:
		c.tokenEnd = time.Time{}
		if p.Refresh.TTL > 0 {
			c.tokenEnd = w.Now().Add(time.Duration(p.Refresh.TTL) * time.Second)
		}
	case p.Subscribe != nil:
		if sub != nil && sub.live {
			w.fail("%s is subscribed to %s twice", c.name, p.Channel)
		}
		sub = w.newSubscription(c.name, p.Channel)
		sub.server = true
		c.subs[p.Channel] = sub
		c.subscribed(sub, p.Subscribe)
	case sub == nil || !sub.live:
		if p.Unsubscribe == nil || sub == nil || !sub.asked {
			w.fail("%s got a push in %s, where it is not subscribed: %+v", c.name, p.Channel, *p)
		}
	case p.Unsubscribe != nil:
		w.note("%s loses %s: %d", c.name, p.Channel, p.Unsubscribe.Code)
		sub.live = false
		if sub.asked { // it was about to leave
			return
		}
		if p.Unsubscribe.Code >= 2500 && !w.stopping && !sub.server {
			c.send(c.subscribeCommand(sub))
		} else {
			delete(c.subs, p.Channel)
		}
	case p.Pub != nil:
		c.publication(sub, p.Pub)
	case p.Join != nil:
		if !sub.notices && !w.rules(p.Channel).PushJoinLeave {
			w.fail("%s got a notice in %s, which it has not asked for", c.name, p.Channel)
		}
		if id := p.Join.Info.Client; sub.there[id] {
			w.fail("%s: %s joins %s twice", c.name, id, p.Channel)
		}
		sub.there[p.Join.Info.Client] = true
	case p.Leave != nil:
		sub.there[p.Leave.Info.Client] = false
	}
}

// publication takes a publication.
func (c *socketClient) publication(sub *subscription, p *saidPublication) {
	data := rawData(p.Data)
	if sub.delta {
		if !c.proto {
			var text string
			if err := json.Unmarshal(p.Data, &text); err != nil {
				c.w.fail("%s: data with deltas is %s", c.name, p.Data)
			}
			data = []byte(text)
		}
		if p.Delta {
			whole, err := fossil.Apply(sub.base, data, 1<<20)
			if err != nil {
				c.w.fail("%s: a delta in %s does not apply: %v", c.name, sub.channel, err)
				return
			}
			data = whole
		}
		sub.base = data
	} else if p.Delta {
		c.w.fail("%s got a delta in %s", c.name, sub.channel)
	}
	sub.got(idIn(string(data)), push.Position{Offset: p.Offset, Epoch: sub.at.Epoch})
}

// rawData returns the data of a publication as bytes.
func rawData(data json.RawMessage) []byte {
	var text string
	if json.Unmarshal(data, &text) == nil {
		if after, ok := strings.CutPrefix(text, "hex:"); ok {
			raw, _ := hex.DecodeString(after)
			return raw
		}
	}
	return data
}

// idIn returns the number between # in data, or -1. Clients that speak JSON get bytes in base64.
func idIn(data string) int {
	_, rest, found := strings.Cut(data, "#")
	if !found {
		var text string
		if json.Unmarshal([]byte(data), &text) == nil {
			raw, err := base64.StdEncoding.DecodeString(text)
			if err == nil {
				_, rest, found = strings.Cut(string(raw), "#")
			}
		}
	}
	number, _, _ := strings.Cut(rest, "#")
	n, err := strconv.Atoi(number)
	if !found || err != nil {
		return -1
	}
	return n
}

// subscribed takes the answer to a subscription, or the news of one.
func (c *socketClient) subscribed(sub *subscription, r *saidSubscribed) {
	w := c.w
	rules := w.rules(sub.channel)
	before := *sub
	sub.confirmed()
	sub.delta = r.Delta
	sub.wanted = !sub.server
	if r.Delta && (rules.Slow != push.SlowDisconnect || sub.filter != "" || !c.seeks) {
		w.fail("%s got deltas in %s", c.name, sub.channel)
	}
	at := push.Position{Offset: r.Offset, Epoch: r.Epoch}
	switch {
	case !r.Recoverable:
		if rules.Recovery {
			w.fail("%s got no position in %s", c.name, sub.channel)
		}
		return
	case r.WasRecovering && r.Recovered:
		sub.recovering = true
		for i := range r.Publications {
			c.publication(sub, &r.Publications[i])
		}
		l := w.bus.log(sub.channel)
		for i := sub.last + 1; i < len(l.list); i++ {
			if p := l.list[i]; p.at.Epoch == r.Epoch && p.at.Offset <= r.Offset && !(sub.filter != "" &&
				p.tags["k"] != sub.filter) {
				w.fail("%s has not recovered %d in %s", c.name, p.id, sub.channel)
			}
		}
		sub.recovering, sub.begun = false, false
		sub.from(at)
		return
	case r.WasRecovering:
		c.mayNotRecover(&before, at)
	}
	if r.WasRecovering && len(r.Publications) > 0 {
		w.fail("%s got publications in %s and has not recovered", c.name, sub.channel)
	}
	sub.last = -1
	sub.from(at)
	if sub.server && !r.WasRecovering {
		sub.maybe = len(w.bus.log(sub.channel).list)
	}
}

// mayNotRecover checks that there is a reason for which the client could not recover.
func (c *socketClient) mayNotRecover(s *subscription, at push.Position) {
	w := c.w
	rules, l := w.rules(s.channel), w.seam.Limits()
	list := w.bus.log(s.channel).list
	if s.at.Epoch != at.Epoch {
		if w.o.config.Limits.HistoryChannels == 0 && w.o.config.Limits.HistoryBytes == 0 {
			w.fail("%s: %s is in epoch %s, was in %s", c.name, s.channel, at.Epoch, s.at.Epoch)
		}
		return
	}
	if w.o.config.Limits.HistoryBytes > 0 || w.o.config.Limits.HistoryChannels > 0 {
		return
	}
	missed, bytes := 0, 0
	for i, p := range list {
		if p.at.Epoch != s.at.Epoch || p.at.Offset <= s.at.Offset || p.at.Offset > at.Offset {
			continue
		}
		missed++
		bytes += 256 + len(s.channel) + len(p.data)
		for k, v := range p.tags {
			bytes += len(k) + len(v)
		}
		if w.Now().Sub(p.when) >= rules.HistoryAge-time.Second || i < w.forgotten[s.channel] {
			return
		}
	}
	if missed > rules.HistorySize || missed > l.Recovered || bytes > l.Queue {
		return
	}
	w.fail("%s could not recover %d publications in %s from %v to %v", c.name, missed, s.channel, s.at, at)
}

// replied takes the reply to a command.
func (c *socketClient) replied(s *said, line []byte) {
	w := c.w
	if len(c.asked) == 0 || c.asked[0].id != s.ID {
		w.fail("%s got the reply %s, and waits for %v", c.name, line, c.asked)
		return
	}
	was := c.asked[0]
	c.asked = c.asked[1:]
	if s.Error != nil {
		c.refused(was, s.Error.Code, s.Error.Message)
		return
	}
	switch was.kind {
	case "connect":
		if s.Connect == nil {
			break
		}
		c.id, c.secret = s.Connect.Client, s.Connect.Session
		if c.stream != (c.secret != "") {
			w.fail("%s has the session %q", c.name, c.secret)
		}
		c.emulate()
		for _, name := range sortedKeys(s.Connect.Subs) {
			before, sub := c.subs[name], w.newSubscription(c.name, name)
			c.subs[name], sub.server = sub, true
			c.subscribed(sub, s.Connect.Subs[name])
			sub.asked = before != nil && before.asked // that will be refused: it is subscribed already
		}
		return
	case "subscribe":
		if sub := c.subs[was.channel]; s.Subscribe != nil && sub != nil {
			c.subscribed(sub, s.Subscribe)
			return
		}
	case "unsubscribe":
		if s.Unsubscribe != nil {
			delete(c.subs, was.channel)
			return
		}
	case "publish":
		if s.Publish != nil {
			w.accept(was.number, was.channel)
			return
		}
	case "refresh":
		if s.Refresh != nil {
			c.tokenEnd = w.Now().Add(time.Duration(s.Refresh.TTL) * time.Second)
			return
		}
	case "ping":
		if s.Ping != nil {
			return
		}
	case "rpc":
		if s.RPC != nil {
			return
		}
	case "presence":
		if s.Presence != nil {
			return
		}
	case "presence_stats":
		if s.PresenceStats != nil {
			return
		}
	case "history":
		if s.History != nil {
			return
		}
	}
	w.fail("%s got %s as the answer to %v", c.name, line, was)
}

// refused takes an error.
func (c *socketClient) refused(was command, code int, message string) {
	w := c.w
	rules := w.rules(was.channel)
	may := false
	switch code {
	case 100:
		may = w.o.hooked() || (w.stopping || w.shut) && message == "the server is shutting down"
	case 103:
		switch was.kind {
		case "subscribe":
			may = rules.SubscribeToken || rules.UserLimited || w.o.hooked()
		case "publish":
			may = true // by the rule, the hook, or because clients may not publish
		case "history", "presence", "presence_stats":
			may = rules.SubscribeToken || rules.SubscribeHook || rules.UserLimited || rules.ChannelRegex != "" ||
				w.o.reload
		case "connect", "rpc":
			may = w.o.hooked()
		}
	case 105:
		sub := c.subs[was.channel]
		may = was.kind == "subscribe" && sub != nil && sub.live && sub.server
		if may {
			sub.asked = false
			return
		}
	case 106:
		may = was.kind == "subscribe" && w.o.config.Limits.Channels > 0 || was.kind == "presence" &&
			w.o.config.Limits.Present > 0
	case 107:
		may = rules.ChannelRegex != "" || w.o.reload
	case 108:
		may = was.kind == "presence" && !rules.Presence || was.kind == "presence_stats" && !rules.Presence ||
			was.kind == "history" && rules.HistorySize == 0 || w.o.reload || was.kind == "refresh" && !w.o.tokens
	case 109:
		may = w.o.tokens
	case 111:
		may = w.o.config.Rates != (push.Rates{}) || w.o.reload
	case 112:
	case 500:
		may = w.o.badHooks
	}
	if !may {
		w.fail("%s: %v was answered %d %s", c.name, was, code, message)
	}
	switch was.kind {
	case "subscribe":
		if sub := c.subs[was.channel]; sub != nil {
			sub.asked = false
			if !sub.live {
				delete(c.subs, was.channel)
			}
		}
	case "publish":
		w.refused[was.number] = was.channel
	case "connect":
		c.lose(fmt.Sprintf("connect: %d %s", code, message))
	}
}

// isQuiet reports whether nothing is under way.
func (c *socketClient) isQuiet() bool {
	if c.gone || c.w.stopping {
		return c.peer == nil || len(c.asked) == 0
	}
	return c.peer != nil && c.id != "" && c.peer.Unsent() == 0 && !c.unanswered()
}

// unanswered reports whether a command waits for its answer. A refresh is sent all the time.
func (c *socketClient) unanswered() bool {
	return slices.ContainsFunc(c.asked, func(one command) bool { return one.kind != "refresh" })
}

// read has the client read, or not.
func (c *socketClient) read(on bool) {
	if c.peer == nil || on != c.stopped {
		return
	}
	if c.stopped = !on; on {
		c.peer.Resume()
		return
	}
	c.peer.StopReading()
}

// leave ends the client for good.
func (c *socketClient) leave() {
	c.gone, c.backAt = true, time.Time{}
	if c.peer != nil {
		c.peer.Close()
		c.peer = nil
	}
}

// checkShutdown checks that the client was told of the end.
func (c *socketClient) checkShutdown() {
	if !c.gone && c.id != "" && c.peer != nil {
		c.w.fail("%s is still connected behind Shutdown", c.name)
	}
}

// act does something that a client does.
func (c *socketClient) act() {
	w := c.w
	if c.peer == nil || c.id == "" {
		return
	}
	if c.stopped && w.random.IntN(3) > 0 {
		return
	}
	name := w.channel()
	sub := c.subs[name]
	quiet := sub == nil || !sub.asked
	switch n := w.random.IntN(20); {
	case n < 6:
		if sub != nil && (sub.live || sub.asked) {
			return
		}
		sub = w.newSubscription(c.name, name)
		sub.notices = w.rules(name).JoinLeave && w.random.IntN(2) == 0
		if w.random.IntN(5) == 0 {
			sub.filter = []string{"x", "y"}[w.random.IntN(2)]
		}
		c.subs[name] = sub
		w.note("%s subscribes to %s", c.name, name)
		c.send(c.subscribeCommand(sub))
	case n < 8:
		if sub == nil || !sub.live || sub.asked {
			return
		}
		w.note("%s unsubscribes from %s", c.name, name)
		sub.asked = true
		c.send(c.command("unsubscribe", name, fmt.Sprintf(`"unsubscribe":{"channel":%q}`, name)))
	case n < 11:
		var frame []string
		for range 1 + w.random.IntN(min(3, w.seam.Limits().Commands)) {
			id := w.newID()
			w.note("%s publishes %d to %s", c.name, id, name)
			frame = append(frame, c.command("publish", name, fmt.Sprintf(`"publish":{"channel":%q,"data":%s}`, name,
				w.data(id))))
			c.asked[len(c.asked)-1].number = id
		}
		c.send(frame...)
	case n == 11:
		c.send(c.command("history", name, fmt.Sprintf(`"history":{"channel":%q,"limit":%d}`, name, w.random.IntN(5)-1)))
	case n == 12:
		c.send(c.command("presence", name, fmt.Sprintf(`"presence":{"channel":%q}`, name)))
	case n == 13:
		c.send(c.command("presence_stats", name, fmt.Sprintf(`"presence_stats":{"channel":%q}`, name)))
	case n == 14:
		c.send(c.command("rpc", "", `"rpc":{"method":"echo","data":{"a":1}}`))
	case n == 15:
		c.send(c.command("ping", "", `"ping":{}`))
	case n == 16:
		w.note("%s stops reading", c.name)
		c.read(false)
	case n == 17:
		c.read(true)
	case n == 18:
		w.note("%s resets", c.name)
		c.peer.Reset()
		c.lose("reset")
	case n == 19 && quiet:
		w.note("%s closes", c.name)
		c.lose("close")
	}
}
