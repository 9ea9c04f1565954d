package centrifuge

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push/internal/prototest"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// definitions are the messages of client.proto that this package reads and writes, one to a line,
// which may be continued: the name, and each field with its number and type. A "*" marks a repeated
// field, a "%" a map from strings.
const definitions = `
Error code=1:uint32 message=2:string temporary=3:bool
EmulationRequest node=1:string session=2:string data=3:bytes
Command id=1:uint32 connect=4:ConnectRequest subscribe=5:SubscribeRequest unsubscribe=6:Channel
  publish=7:PublishRequest presence=8:Channel presence_stats=9:Channel history=10:HistoryRequest ping=11:Empty
  send=12:Data rpc=13:RPCRequest refresh=14:RefreshRequest sub_refresh=15:SubRefreshRequest
Reply id=1:uint32 error=2:Error push=4:Push connect=5:ConnectResult subscribe=6:SubscribeResult
  unsubscribe=7:Empty publish=8:Empty presence=9:PresenceResult presence_stats=10:PresenceStatsResult
  history=11:HistoryResult ping=12:Empty rpc=13:Data refresh=14:RefreshResult sub_refresh=15:SubRefreshResult
Push channel=2:string pub=4:Publication join=5:Join leave=6:Join unsubscribe=7:Unsubscribe message=8:Data
  subscribe=9:Subscribe connect=10:Connect disconnect=11:Disconnect refresh=12:Refresh
ClientInfo user=1:string client=2:string conn_info=3:bytes chan_info=4:bytes
Publication data=4:bytes info=5:ClientInfo offset=6:uint64 tags=7:%string delta=8:bool
Join info=1:ClientInfo
Unsubscribe code=2:uint32 reason=3:string
Subscribe recoverable=1:bool epoch=4:string offset=5:uint64 positioned=6:bool data=7:bytes
Data data=1:bytes
Empty
Connect client=1:string version=2:string data=3:bytes subs=4:%SubscribeResult expires=5:bool ttl=6:uint32
  ping=7:uint32 pong=8:bool session=9:string node=10:string
Disconnect code=1:uint32 reason=2:string reconnect=3:bool
Refresh expires=1:bool ttl=2:uint32
ConnectRequest token=1:string data=2:bytes subs=3:%SubscribeRequest name=4:string version=5:string
  headers=6:%string flag=7:int64
ConnectResult client=1:string version=2:string expires=3:bool ttl=4:uint32 data=5:bytes subs=6:%SubscribeResult
  ping=7:uint32 pong=8:bool session=9:string node=10:string
RefreshRequest token=1:string
RefreshResult client=1:string version=2:string expires=3:bool ttl=4:uint32
SubscribeRequest channel=1:string token=2:string recover=3:bool epoch=6:string offset=7:uint64 data=8:bytes
  positioned=9:bool recoverable=10:bool join_leave=11:bool delta=12:string tf=13:FilterNode flag=14:int64
  type=15:int32
SubscribeResult expires=1:bool ttl=2:uint32 recoverable=3:bool epoch=6:string publications=7:*Publication
  recovered=8:bool offset=9:uint64 positioned=10:bool data=11:bytes was_recovering=12:bool delta=13:bool
SubRefreshRequest channel=1:string token=2:string type=3:int32
SubRefreshResult expires=1:bool ttl=2:uint32
Channel channel=1:string
PublishRequest channel=1:string data=2:bytes type=3:int32
PresenceResult presence=1:%ClientInfo
PresenceStatsResult num_clients=1:uint32 num_users=2:uint32
StreamPosition offset=1:uint64 epoch=2:string
HistoryRequest channel=1:string limit=7:int32 since=8:StreamPosition reverse=9:bool
HistoryResult publications=1:*Publication epoch=2:string offset=3:uint64
RPCRequest data=1:bytes method=2:string
FilterNode op=1:string key=2:string cmp=3:string val=4:string vals=5:*string nodes=6:*FilterNode
`

// messages are the definitions, compiled by another implementation of Protobuf.
func messages(t testing.TB) protoreflect.MessageDescriptors {
	t.Helper()
	return prototest.Messages(t, definitions)
}

// decode returns what another implementation reads in a message after its length, as JSON.
func decode(t *testing.T, d protoreflect.MessageDescriptor, p []byte) map[string]any {
	t.Helper()
	length, n, err := parseVarint(p)
	if err != nil || int(length) != len(p)-n {
		t.Fatalf("%x begins with the length %d", p, length)
	}
	m := dynamicpb.NewMessage(d)
	if err := proto.Unmarshal(p[n:], m); err != nil {
		t.Fatalf("%x: %v", p, err)
	}
	if unknown := m.GetUnknown(); len(unknown) > 0 {
		t.Errorf("unknown fields %x", unknown)
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return normal(t, text, true).(map[string]any)
}

// normal decodes JSON for a comparison. The mapping of Protobuf to JSON writes bytes in base64 and
// 64-bit numbers as strings.
func normal(t *testing.T, text []byte, mapped bool) any {
	t.Helper()
	var v any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return simplify("", v, mapped)
}

func simplify(name string, v any, mapped bool) any {
	isData := name == "data" || strings.HasSuffix(name, "_info")
	switch v := v.(type) {
	case map[string]any:
		if isData {
			return fmt.Sprint(v)
		}
		for key, one := range v {
			if v[key] = simplify(key, one, mapped); v[key] == "" || v[key] == "0" {
				delete(v, key) // zero values are left out in Protobuf
			}
		}
		return v
	case []any:
		if len(v) == 0 {
			return ""
		}
		for i := range v {
			v[i] = simplify(name, v[i], mapped)
		}
		return v
	case string:
		if isData && mapped {
			raw, _ := base64.StdEncoding.DecodeString(v)
			return string(raw)
		}
		return v
	}
	return fmt.Sprint(v)
}

// Both forms of a reply say the same: what another implementation of Protobuf reads in the one is
// the other.
func TestProtobufRepliesAreTheJSONReplies(t *testing.T) {
	d := messages(t)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		reply := Reply{ID: r.Uint32() >> r.IntN(32)}
		fillReply(&reply, i%14, r)
		want := normal(t, JSON.AppendReply(nil, &reply), false)
		got := decode(t, d.ByName("Reply"), Protobuf.AppendReply(nil, &reply))
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("reply %d:\n got %v\nwant %v", i%14, got, want)
		}
		if reply.Push == nil {
			continue
		}
		want = normal(t, JSON.AppendPush(nil, reply.Push), false)
		if got = decode(t, d.ByName("Push"), Protobuf.AppendPush(nil, reply.Push)); !reflect.DeepEqual(got, want) {
			t.Fatalf("push:\n got %v\nwant %v", got, want)
		}
	}
}

// fillReply sets one member, with random content.
func fillReply(reply *Reply, kind int, r *rand.Rand) {
	switch kind {
	case 0:
		reply.Error = &Error{r.Uint32N(500), word(r), r.IntN(2) > 0}
	case 1:
		reply.Method = Unsubscribe
	case 2:
		reply.Connect = randomConnect(r)
	case 3:
		reply.Subscribe = randomSubscribe(r)
	case 4:
		reply.Presence = new(PresenceResult)
		for range 1 + r.IntN(3) {
			reply.Presence.Clients = append(reply.Presence.Clients, randomInfo(r))
		}
	case 5:
		reply.Stats = &PresenceStatsResult{r.IntN(300), r.IntN(3)}
	case 6:
		reply.History = &HistoryResult{randomPublications(r), Position{r.Uint64(), word(r)}}
	case 7:
		reply.RPC = &RPCResult{number(r)}
	case 8:
		reply.Refresh = &RefreshResult{word(r), word(r), r.IntN(2) > 0, r.Uint32N(200)}
	case 9:
		reply.SubRefresh = &RefreshResult{Expires: true, TTL: r.Uint32N(200)}
	default:
		reply.Push = randomPush(r)
	}
}

func randomPush(r *rand.Rand) *Push {
	p := &Push{Channel: word(r)}
	switch r.IntN(8) {
	case 0, 1:
		if list := randomPublications(r); len(list) > 0 {
			p.Publication = &list[0]
		}
	case 2:
		p.Join = new(randomInfo(r))
	case 3:
		p.Leave = new(randomInfo(r))
	case 4:
		p.Unsubscribe = &Unsubscribed{r.Uint32N(3000), word(r)}
	case 5:
		p.Message = number(r)
	case 6:
		p.Connect = randomConnect(r)
	case 7:
		p.Disconnect = &Disconnect{uint16(r.IntN(5000)), word(r)}
	}
	return p
}

func randomConnect(r *rand.Rand) *ConnectResult {
	c := &ConnectResult{Client: word(r), Version: word(r), Expires: r.IntN(2) > 0, TTL: r.Uint32N(3), Data: number(r),
		Ping: r.Uint32N(300), Pong: r.IntN(2) > 0, Session: word(r), Node: word(r)}
	for i := range r.IntN(3) {
		c.Subs = append(c.Subs, ServerSubscription{fmt.Sprint("channel ", i), *randomSubscribe(r)})
	}
	return c
}

func randomSubscribe(r *rand.Rand) *SubscribeResult {
	s := &SubscribeResult{Expires: r.IntN(2) > 0, TTL: r.Uint32N(300), Delta: r.IntN(2) > 0, Data: number(r),
		WasRecovering: r.IntN(2) > 0, Recovered: r.IntN(2) > 0, Publications: randomPublications(r)}
	if r.IntN(2) > 0 {
		s.Recoverable, s.Position = true, Position{r.Uint64(), word(r)}
	}
	return s
}

func randomPublications(r *rand.Rand) (list []Publication) {
	for range r.IntN(3) {
		p := Publication{Data: number(r), Client: word(r), Offset: r.Uint64() >> r.IntN(64), Delta: r.IntN(2) > 0}
		if p.Client != "" {
			p.User = word(r)
		}
		for i := range r.IntN(3) {
			if p.Tags == nil {
				p.Tags = map[string]string{}
			}
			p.Tags[fmt.Sprint("tag ", i)] = "x" + word(r)
		}
		list = append(list, p)
	}
	return list
}

func randomInfo(r *rand.Rand) ClientInfo {
	return ClientInfo{Client: "c" + fmt.Sprint(r.Uint64()), User: word(r), ConnInfo: number(r), ChanInfo: number(r)}
}

// word returns a random text, sometimes a long one, whose length takes two bytes or three.
func word(r *rand.Rand) string {
	return strings.Repeat("wörd ", []int{0, 1, 2, 40, 4000}[r.IntN(5)])
}

func number(r *rand.Rand) []byte { return fmt.Append(nil, 1+r.IntN(1000)) }

// What another implementation writes as a command is parsed as the same command in JSON is.
func TestProtobufCommandsAreTheJSONCommands(t *testing.T) {
	d := messages(t).ByName("Command")
	for _, text := range []string{
		`{}`, `{"id":1,"connect":{}}`, `{"id":300,"ping":{}}`,
		`{"id":1,"connect":{"token":"t","name":"js","version":"5","data":"MQ==","headers":{"a":"b"},"flag":3,"subs":` +
			`{"a":{"recover":true,"epoch":"e","offset":"7"},"b":{}}}}`,
		`{"id":2,"subscribe":{"channel":"ä","token":"t","recover":true,"epoch":"e","offset":"18446744073709551615",` +
			`"data":"MQ==","join_leave":true,"delta":"fossil","flag":"2","type":1,"positioned":true,"tf":{"op":"and",` +
			`"nodes":[{"key":"a","cmp":"in","vals":["x","y"]},{"op":"not","nodes":[{"key":"b",` +
			`"cmp":"eq","val":"z"}]}]}}}`,
		`{"id":3,"unsubscribe":{"channel":"a"}}`, `{"id":4,"publish":{"channel":"a","data":"MTIz","type":1}}`,
		`{"id":5,"presence":{"channel":"a"}}`, `{"id":6,"presence_stats":{"channel":"a"}}`,
		`{"id":7,"history":{"channel":"a","limit":-1,"since":{"offset":"3","epoch":"e"},"reverse":true}}`,
		`{"send":{"data":"MQ=="}}`, `{"id":9,"rpc":{"method":"m","data":"MQ=="}}`, `{"id":8,"refresh":{"token":"t"}}`,
		`{"id":4294967295,"sub_refresh":{"channel":"a","token":"t","type":2}}`,
	} {
		m := dynamicpb.NewMessage(d)
		if err := protojson.Unmarshal([]byte(text), m); err != nil {
			t.Fatal(err)
		}
		p, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		p = append(appendLength(nil, len(p)), p...)
		n, got, err := Protobuf.Parse(append(p, 0))
		if err != nil || n != len(p) {
			t.Fatalf("%s: %d of %d bytes, %v", text, n, len(p), err)
		}
		plain := strings.NewReplacer(`"MQ=="`, "1", `"MTIz"`, "123", `"7"`, "7", `"3"`, "3", `"2"`, "2",
			`"18446744073709551615"`, "18446744073709551615").Replace(text)
		_, want, err := JSON.Parse([]byte(plain))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", text, got, want)
		}
	}
}

func appendLength(dst []byte, n int) []byte { return binary.AppendUvarint(dst, uint64(n)) }

func TestProtobufErrors(t *testing.T) {
	deep := []byte(nil)
	for range maxFilterDepth + 2 {
		deep = append(append(appendKey(nil, 6, wireBytes), appendLength(nil, len(deep))...), deep...)
	}
	filter := append(append(appendKey(nil, 13, wireBytes), appendLength(nil, len(deep))...), deep...)
	nested := append(append(appendKey(nil, 5, wireBytes), appendLength(nil, len(filter))...), filter...)
	for name, body := range map[string]string{
		"field number 0":        "\x00\x01",
		"a group":               "\x0b\x0c",
		"an unknown wire type":  "\x0f",
		"a truncated number":    "\x08\x80",
		"a number of 70 bits":   "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
		"a truncated string":    "\x22\x03\x0a\x05a",
		"no bytes for 64 bits":  "\x81\x01\x00",
		"text for the id":       "\x0a\x01a",
		"a number for connect":  "\x20\x01",
		"a token not in UTF-8":  "\x22\x03\x0a\x01\xff",
		"a huge length":         "\x22\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"a filter that is deep": string(nested),
	} {
		p := append(appendLength(nil, len(body)), body...)
		if n, _, err := Protobuf.Parse(p); err == nil || n != 0 {
			t.Errorf("%s: %d bytes, error %v", name, n, err)
		}
	}
	for _, p := range []string{"", "\x05\x08\x01", "\x80", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		if n, _, err := Protobuf.Parse([]byte(p)); err == nil || n != 0 {
			t.Errorf("%x: %d bytes, error %v", p, n, err)
		}
	}
}

func FuzzProtobuf(f *testing.F) {
	f.Add([]byte("\x00"))
	f.Add([]byte("\x04\x08\x01\x22\x00\x09\x08\x02\x2a\x05\x0a\x03abc"))
	d := messages(f).ByName("Command")
	f.Fuzz(func(t *testing.T, p []byte) {
		n, c, err := Protobuf.Parse(p)
		if err != nil {
			if n != 0 {
				t.Fatalf("an error consumed %d bytes", n)
			}
			return
		}
		if n <= 0 || n > len(p) {
			t.Fatalf("consumed %d of %d bytes", n, len(p))
		}
		_, size, _ := parseVarint(p)
		m := dynamicpb.NewMessage(d)
		if err := proto.Unmarshal(p[size:n], m); err != nil {
			t.Fatalf("%x is parsed as %+v, but it is malformed: %v", p[:n], c, err)
		}
		if id := m.Get(d.Fields().ByName("id")).Uint(); uint32(id) != c.ID {
			t.Fatalf("id %d, want %d", c.ID, id)
		}
	})
}
