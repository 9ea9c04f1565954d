package api_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
	"github.com/myriad-go/myriad/server/push/internal/prototest"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/membus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// An rpcReply is what a client of gRPC gets.
type rpcReply struct {
	status, message string
	body            []byte      // after the prefix
	header, trailer http.Header // of an answer without a message both are the same
}

// rpc makes a call with the bytes of a request's body.
func callRPC(ts *servertest.Server, method string, body io.Reader, fields ...string) rpcReply {
	ts.T.Helper()
	r := httptest.NewRequest("POST", rpcService+method, body)
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
	r.Header.Set("Content-Type", "application/grpc")
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	ts.ServeHTTP(w, r)
	answer := w.Result()
	end := answer.Trailer
	if answer.Header.Get("Grpc-Status") != "" { // Trailers-Only
		end = answer.Header
	}
	message, err := url.PathUnescape(end.Get("Grpc-Message"))
	reply := rpcReply{end.Get("Grpc-Status"), message, w.Body.Bytes(), answer.Header, end}
	if answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "application/grpc" || err != nil {
		ts.T.Errorf("%s: status %d, header %v, %v", method, answer.StatusCode, answer.Header, err)
	}
	if reply.status == "0" {
		if len(reply.body) < rpcPrefix || reply.body[0] != 0 ||
			int(binary.BigEndian.Uint32(reply.body[1:])) != len(reply.body)-rpcPrefix {
			ts.T.Fatalf("%s: the body is %x", method, reply.body)
		}
		reply.body = reply.body[rpcPrefix:]
	} else if len(reply.body) > 0 {
		ts.T.Errorf("%s: a message %x with the status %s", method, reply.body, reply.status)
	}
	return reply
}

// An rpcClient speaks JSON to the gRPC API, by another implementation of Protobuf.
type rpcClient struct {
	*servertest.Server
	types protoreflect.MessageDescriptors
}

func newRPCClient(ts *servertest.Server) rpcClient {
	return rpcClient{ts, prototest.Messages(ts.T, centrifuge.APIDefinitions)}
}

func (c rpcClient) messageOf(method, kind string) protoreflect.MessageDescriptor {
	if d := c.types.ByName(protoreflect.Name(method + kind)); d != nil {
		return d
	}
	return c.types.ByName(protoreflect.Name("Unserved" + kind))
}

// encode returns the request in Protobuf. It returns an error if the message has no such field, or
// not with such a value.
func (c rpcClient) encode(method, request string) ([]byte, error) {
	m, err := prototest.Message(c.messageOf(method, "Request"), []byte(request))
	if err != nil {
		return nil, err
	}
	return proto.Marshal(m)
}

// call returns the reply to a request. If the status is another one than OK, it returns that.
func (c rpcClient) call(method, request string, fields ...string) string {
	c.T.Helper()
	p, err := c.encode(method, request)
	if err != nil {
		c.T.Fatalf("%s %s: %v", method, request, err)
	}
	reply := callRPC(c.Server, method, bytes.NewReader(rpcFrame(p)), fields...)
	if reply.status != "0" {
		return reply.status + " " + reply.message
	}
	m := dynamicpb.NewMessage(c.messageOf(method, "Response"))
	if err := proto.Unmarshal(reply.body, m); err != nil || len(m.GetUnknown()) > 0 {
		c.T.Fatalf("%s %s: %x, %v", method, request, reply.body, err)
	}
	text, err := json.Marshal(prototest.Object(m, func(name string, p []byte) (string, any) {
		if !json.Valid(p) {
			return name, p
		}
		return name, json.RawMessage(p)
	}))
	if err != nil {
		c.T.Fatal(err)
	}
	return string(text)
}

// sparse returns the JSON without zero values, which Protobuf leaves out.
func sparse(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	shown, _ := json.Marshal(withoutZeros(v))
	return string(shown)
}

func withoutZeros(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, one := range v {
			if name == "num_clients" || name == "data" {
				continue
			}
			if v[name] = withoutZeros(one); v[name] == nil {
				delete(v, name)
			}
		}
		if len(v) > 0 {
			return v
		}
	case []any:
		for i := range v {
			v[i] = withoutZeros(v[i])
		}
		if len(v) > 0 {
			return v
		}
	default:
		if v != "" && v != 0.0 && v != false {
			return v
		}
	}
	return nil
}

// The gRPC API answers Centrifugo's documented requests as the HTTP API does, with the same results
// and errors, and the clients are told the same.
func TestRPCReplaysCentrifugo(t *testing.T) {
	overHTTP, overRPC := newReplayServer(t), newReplayServer(t)
	c := newRPCClient(overRPC.Server)
	called, served := map[string]int{}, map[string]bool{"batch": true}
	for _, m := range servertest.APIMethods(overRPC.Server) {
		served[m.Name] = true
	}
	for _, name := range unservedMethods {
		served[name] = true
	}
	for _, r := range replay {
		method := rpcName(r.method)
		if !served[r.method] {
			continue
		}
		if _, err := c.encode(method, overRPC.body(r)); err != nil {
			continue // Protobuf has no such request
		}
		called[r.method]++
		w := overHTTP.Do("POST", "/api/"+r.method, overHTTP.body(r))
		got := overRPC.shown.Replace(c.call(method, overRPC.body(r)))
		want := overHTTP.shown.Replace(w.Body.String())
		if countedOnly.MatchString(want) {
			want = `{"result":{}}` // the messages have no num_clients there
		}
		if sparse(t, epochs.ReplaceAllString(got, `"epoch":"E"`)) != sparse(t, epochs.ReplaceAllString(want,
			`"epoch":"E"`)) {
			t.Errorf("%s %s: %s, want %s", r.method, r.body, got, want)
		}
		if got, want := overRPC.told(), overHTTP.told(); got != want {
			t.Errorf("%s %s: the clients get\n%s\nwant\n%s", r.method, r.body, got, want)
		}
	}
	for _, m := range servertest.APIMethods(overRPC.Server) {
		if called[m.Name] == 0 && m.Name != "connections" { // which is no method of Centrifugo without PRO
			t.Errorf("%s was not called", m.Name)
		}
	}
	if called["publish"] < 15 || called["subscribe"] < 12 || called["batch"] < 1 {
		t.Errorf("only these were called: %v", called)
	}
}

// Every method of the table has its messages, and fields of a request that the method does not
// serve are refused by name.
func TestRPCHasEveryMethod(t *testing.T) {
	ts := servertest.New(t, push.Config{})
	c := newRPCClient(ts)
	for _, m := range servertest.APIMethods(ts) {
		name := rpcName(m.Name)
		request := c.types.ByName(protoreflect.Name(name + "Request"))
		if request == nil || c.types.ByName(protoreflect.Name(name+"Response")) == nil {
			t.Errorf("%s has no messages", name)
			continue
		}
		for _, field := range m.Fields {
			if request.Fields().ByName(protoreflect.Name(field)) == nil {
				t.Errorf("%sRequest has no field %s", name, field)
			}
		}
		for field, value := range map[string]string{"label_filter": `{"op":"and"}`, "all_users": "true",
			"expression": `"x"`} {
			if request.Fields().ByName(protoreflect.Name(field)) == nil {
				continue
			}
			got := c.call(name, `{"`+field+`":`+value+`}`)
			if !strings.Contains(got, `"code":107`) ||
				!strings.Contains(got, `field \"`+field+`\" of `+m.Name+` is not`) {
				t.Errorf("%s with %s: %s", name, field, got)
			}
		}
	}
	for _, method := range unservedMethods {
		request := `{}`
		if method == "rpc" {
			request = `{"method":"m"}`
		}
		want := `{"error":{"code":104,"message":"the method \"` + method + `\" is not served`
		if got := c.call(rpcName(method), request); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", method, got)
		}
	}
	if got := c.call("Connections", `{}`); got != `{"result":{}}` {
		t.Errorf("Connections: %s", got)
	}
}

// Data comes back as the bytes that were published, whatever they are.
func TestRPCData(t *testing.T) {
	ts := servertest.New(t, push.Config{Namespaces: []push.Namespace{{HistorySize: 9}}})
	c := newRPCClient(ts)
	stream := ts.Events("channel=news")
	stream.Take()
	for _, data := range []string{`{"a": 1}`, `"é"`, "plain text", "\x00\xff", "1"} {
		request := dynamicpb.NewMessage(c.types.ByName("PublishRequest"))
		request.Set(request.Descriptor().Fields().ByName("channel"), protoreflect.ValueOfString("news"))
		request.Set(request.Descriptor().Fields().ByName("data"), protoreflect.ValueOfBytes([]byte(data)))
		p, err := proto.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		if reply := callRPC(ts, "Publish", bytes.NewReader(rpcFrame(p))); reply.status != "0" {
			t.Errorf("%q: %v", data, reply)
		}
	}
	want := "data: {\"a\": 1}\n\ndata: \"é\"\n\ndata: \"cGxhaW4gdGV4dA==\"\n\ndata: \"AP8=\"\n\ndata: 1\n\n"
	if got := withoutIDs(stream.Take()); got != want {
		t.Errorf("subscribers get %q, want %q", got, want)
	}
	reply := callRPC(ts, "History", bytes.NewReader(rpcFrame([]byte("\x0a\x04news\x10\x09"))))
	for _, data := range []string{`{"a": 1}`, `"é"`, "plain text", "\x00\xff", "1"} {
		if !bytes.Contains(reply.body, append([]byte{2<<3 | 2, byte(len(data))}, data...)) {
			t.Errorf("the history %q has no %q", reply.body, data)
		}
	}
	byHTTP := ts.Call("history", `{"channel":"news","limit":9}`)
	if !strings.Contains(byHTTP, `{"data":{"a": 1},"offset":1}`) {
		t.Errorf("by HTTP the history is %s", byHTTP)
	}
}

// withoutIDs returns events without their ids.
func withoutIDs(events string) string {
	var kept []string
	for line := range strings.Lines(events) {
		if !strings.HasPrefix(line, "id:") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// Errors of the API are in the reply, or become the status of the call, with the error as a detail.
func TestRPCErrorModes(t *testing.T) {
	ts := servertest.New(t, push.Config{Namespaces: []push.Namespace{{HistorySize: 9, KnownOnly: true},
		{Name: "bare"}}})
	c := newRPCClient(ts)
	for _, tt := range []struct{ method, request, inReply, asStatus string }{
		{"Publish", `{"channel":"news"}`, `{"error":{"code":107,"message":"data is missing"}}`, "3 data is missing"},
		{"History", `{"channel":"none:1"}`, `{"error":{"code":102,"message":"unknown channel"}}`, "5 unknown channel"},
		{"History", `{"channel":"bare:1"}`, `{"error":{"code":108,"message":"not available"}}`, "3 not available"},
		{"History", `{"channel":"news","since":{"offset":1,"epoch":"other"}}`,
			`{"error":{"code":112,"message":"unrecoverable position"}}`, "11 unrecoverable position"},
		{"Broadcast", `{"channels":["a","b:"],"data":"` + strings.Repeat("x", 300_000) + `"}`,
			`{"error":{"code":106,"message":"data is 300002 bytes; the limit is 262144"}}`,
			"8 data is 300002 bytes; the limit is 262144"},
		{"Subscribe", `{"channel":"a","user":"b","info":{}}`, `{"result":{}}`, `{"result":{}}`},
	} {
		if got := c.call(tt.method, tt.request); got != tt.inReply {
			t.Errorf("%s: %s, want %s", tt.method, got, tt.inReply)
		}
		if got := c.call(tt.method, tt.request, errorModeHeader, "transport"); got != tt.asStatus {
			t.Errorf("%s, as a status: %s, want %s", tt.method, got, tt.asStatus)
		}
	}
	// A batch has no place for an error of its own.
	many := `{"commands":[` + strings.TrimSuffix(strings.Repeat(`{"info":{}},`, 257), ",") + `]}`
	if got := c.call("Batch", many); got != "8 more than 256 commands in one request: send several" {
		t.Errorf("a large batch: %s", got)
	}
	reply := callRPC(ts, "Publish", bytes.NewReader(rpcFrame([]byte("\x0a\x01a"))), errorModeHeader, "transport")
	details, err := base64.RawStdEncoding.DecodeString(reply.trailer.Get("Grpc-Status-Details-Bin"))
	if want := centrifuge.APIErrorDetails(3, 107, "data is missing", 0); err != nil || !bytes.Equal(details, want) {
		t.Errorf("the details are %q, %v, want %q", details, err, want)
	}
}

// Calls that do not reach the API have a status of their own.
func TestRPCStatuses(t *testing.T) {
	ts := servertest.New(t, push.Config{APIKey: "key", Namespaces: []push.Namespace{{HistorySize: 9}}})
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write([]byte("\x0a\x04news\x12\x011"))
	z.Close()
	compressed := rpcFrame(zipped.Bytes())
	compressed[0] = rpcCompressed
	info := string(rpcFrame(nil))
	for _, tt := range []struct {
		name, method, body string
		fields             []string
		status, message    string
	}{
		{"info", "Info", info, nil, "0", ""},
		{"a timeout", "Info", info, []string{"Grpc-Timeout", "99999999H"}, "0", ""},
		{"gzip", "Publish", string(compressed), []string{"Grpc-Encoding", "gzip"}, "0", ""},
		{"not compressed", "Info", info, []string{"Grpc-Encoding", "gzip"}, "0", ""},
		{"no key", "Info", info, []string{"Authorization", ""}, "16", "the key is missing or wrong"},
		{"a wrong key", "Info", info, []string{"Authorization", "apikey other"}, "16", "the key is missing or wrong"},
		{"a token", "Info", info, []string{"Authorization", "Bearer key"}, "16", "the key is missing or wrong"},
		{"no method", "None", info, nil, "12", `there is no method "None"`},
		{"an empty method", "", info, nil, "12", "there is no method"},
		{"a method of the HTTP API", "info", info, nil, "12", `there is no method "info"`},
		{"Rpc", "Rpc", info, nil, "12", "there is no method"},
		{"BlockUser", "BlockUser", info, nil, "12", `there is no method "BlockUser"`},
		{"br", "Info", info, []string{"Grpc-Encoding", "br"}, "12", "by gzip only"},
		{"a bad timeout", "Info", info, []string{"Grpc-Timeout", "5"}, "13", "grpc-timeout is malformed"},
		{"nothing", "Info", "", nil, "13", "the call ended before its message did"},
		{"half a prefix", "Info", info[:3], nil, "13", "the call ended before its message did"},
		{"half a message", "Info", "\x00\x00\x00\x00\x05abc", nil, "13", "the call ended before its message did"},
		{"two messages", "Info", info + info, nil, "13", "more than one message"},
		{"a byte more", "Info", info + "\x00", nil, "13", "more than one message"},
		{"an unknown flag", "Info", "\x02\x00\x00\x00\x00", nil, "13", "begins with neither"},
		{"compressed by nothing", "Publish", string(compressed), nil, "13", "without grpc-encoding"},
		{"compressed by identity", "Publish", string(compressed), []string{"Grpc-Encoding", "identity"}, "13",
			"without grpc-encoding"},
		{"not gzip", "Info", "\x01\x00\x00\x00\x03abc", []string{"Grpc-Encoding", "gzip"}, "13",
			"not what gzip writes"},
		{"no Protobuf", "Publish", string(rpcFrame([]byte("\x0a\x05a"))), nil, "13",
			"a Protobuf message ends within a field"},
		{"too large", "Publish", "\x00\x00\x10\x00\x00", nil, "8", "the message is larger than "},
		{"far too large", "Batch", "\x00\xff\xff\xff\xff", nil, "8", "the message is larger than 4194304 bytes"},
	} {
		fields := append([]string{"Authorization", "apikey key"}, tt.fields...)
		reply := callRPC(ts, tt.method, strings.NewReader(tt.body), fields...)
		if reply.status != tt.status || !strings.Contains(reply.message, tt.message) {
			t.Errorf("%s: %s %q, want %s %q", tt.name, reply.status, reply.message, tt.status, tt.message)
		}
		if got := reply.header.Get("Grpc-Accept-Encoding"); (got != "") != (tt.name == "br") {
			t.Errorf("%s: grpc-accept-encoding %q", tt.name, got)
		}
	}
	late := callRPC(ts, "Info", lateBody{}, "Authorization", "apikey key")
	if late.status != "4" {
		t.Errorf("a message that is late: %v", late)
	}
	ts.Drain()
	publish := string(rpcFrame([]byte("\x0a\x01a\x12\x011")))
	if got := callRPC(ts, "Publish", strings.NewReader(publish), "Authorization", "apikey key"); got.status != "14" {
		t.Errorf("while the server shuts down: %v", got)
	}
	limited := servertest.New(t, push.Config{Rates: push.Rates{AddressCalls: push.Rate{Count: 1, Per: time.Minute}}})
	for _, want := range []string{"0", "8"} {
		if got := callRPC(limited, "Info", strings.NewReader(info)); got.status != want {
			t.Errorf("above the rate: %v, want %s", got, want)
		}
	}
}

// A lateBody fails as the body of a request does after the server's ReadTimeout.
type lateBody struct{}

func (lateBody) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

// A request that is no call gets an HTTP status.
func TestRPCNeedsHTTP2(t *testing.T) {
	ts := servertest.New(t, push.Config{})
	for _, tt := range []struct {
		method string
		major  int
		kind   string
		status int
	}{
		{"POST", 1, "application/grpc", 505}, {"GET", 2, "application/grpc", 405}, {"POST", 2, "", 415},
		{"POST", 2, "application/json", 415}, {"POST", 2, "application/grpc-web", 415},
		{"POST", 2, "application/grpc+json", 415}, {"POST", 2, "application/grpc+proto", 200},
		{"POST", 2, "application/grpc;charset=utf-8", 200},
	} {
		r := httptest.NewRequest(tt.method, rpcService+"Info", bytes.NewReader(rpcFrame(nil)))
		r.ProtoMajor = tt.major
		r.Header.Set("Content-Type", tt.kind)
		w := httptest.NewRecorder()
		ts.ServeHTTP(w, r)
		if w.Code != tt.status {
			t.Errorf("%+v: %d %s", tt, w.Code, w.Body)
		}
	}
}

// The client's time bounds what the server does for a call, and ends it with a status of its own.
func TestRPCTimeout(t *testing.T) {
	bus := pushtest.WaitingBus{Bus: membus.New(membus.Config{}), Waits: make(chan struct{})}
	ts := servertest.New(t, push.Config{Bus: bus})
	for _, tt := range []struct {
		timeout string
		advance time.Duration
		status  string
	}{{"250m", 250 * time.Millisecond, "4"}, {"20S", 15 * time.Second, "14"}} {
		replies := make(chan rpcReply)
		go func() {
			message := rpcFrame([]byte("\x0a\x01a\x12\x011"))
			replies <- callRPC(ts, "Publish", bytes.NewReader(message), "Grpc-Timeout", tt.timeout)
		}()
		<-bus.Waits
		ts.Clock.Advance(tt.advance)
		if reply := <-replies; reply.status != tt.status {
			t.Errorf("%s: %v, want %s", tt.timeout, reply, tt.status)
		}
	}
}

// What the tests of the API name of it.
const (
	rpcService      = "/centrifugal.centrifugo.api.CentrifugoApi/"
	rpcPrefix       = 5
	rpcCompressed   = 1
	errorModeHeader = "X-Centrifugo-Error-Mode"
)

// rpcFrame returns a message of gRPC that is not compressed.
func rpcFrame(message []byte) []byte {
	dst := make([]byte, rpcPrefix, rpcPrefix+len(message))
	binary.BigEndian.PutUint32(dst[1:], uint32(len(message)))
	return append(dst, message...)
}

// rpcName returns the name in the gRPC API of a method: PresenceStats for presence_stats.
func rpcName(method string) string {
	if method == "rpc" {
		return "RPC"
	}
	var name strings.Builder
	for word := range strings.SplitSeq(method, "_") {
		name.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return name.String()
}

// unservedMethods are those that only other servers of the protocol have.
var unservedMethods = []string{"rpc", "map_publish", "map_remove", "map_read_state", "map_read_stream", "map_stats",
	"map_clear", "shared_poll_publish"}

// A call of the gRPC API is bounded: in bytes, compressed and decompressed, by Limits.Batch, or by
// Limits.Publication for Publish; in depth by maxAPIDepth; in commands by Limits.Commands. What the
// server allocates is bounded, too.
func TestAttackRPC(t *testing.T) {
	ts := servertest.New(t, push.Config{Limits: push.Limits{Batch: 1 << 20}})
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	for range 100 {
		z.Write(make([]byte, 1<<20))
	}
	z.Close()
	bomb := rpcFrame(zipped.Bytes())
	bomb[0] = rpcCompressed
	var deep []byte
	for range 10_000 {
		deep = append(binary.AppendUvarint([]byte{6<<3 | 2}, uint64(len(deep))), deep...)
	}
	deep = append(binary.AppendUvarint([]byte{5<<3 | 2}, uint64(len(deep))), deep...)
	data := append(binary.AppendUvarint([]byte("\x0a\x01a\x12"), 60_002), strings.Repeat("[", 30_001)...)
	for _, tt := range []struct {
		name, method string
		body         []byte
		status       string
		most         uint64 // allocated
	}{
		{"a length without bytes", "Batch", []byte("\x00\x00\x0f\xff\xffabc"), "13", 200 << 10},
		{"a bomb of gzip", "Publish", bomb, "8", 4 << 20},
		{"a deep filter", "Unsubscribe", rpcFrame(deep), "13", 1 << 20},
		{"deep JSON as data", "Publish", rpcFrame(append(data, strings.Repeat("]", 30_001)...)), "0", 4 << 20},
		{"many commands", "Batch", rpcFrame(bytes.Repeat([]byte("\x0a\x02\x6a\x00"), 1<<18-10)), "8", 48 << 20},
		{"many empty commands", "Batch", rpcFrame(bytes.Repeat([]byte("\x0a\x00"), 1<<19-10)), "8", 24 << 20},
		{"many channels", "Broadcast", rpcFrame(bytes.Repeat([]byte("\x0a\x00"), 1<<19-10)), "0", 150 << 20},
		{"many messages", "Info", make([]byte, 10<<20), "13", 200 << 10},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		reply := callRPC(ts, tt.method, bytes.NewReader(tt.body), "Grpc-Encoding", "gzip")
		runtime.ReadMemStats(&after)
		if reply.status != tt.status {
			t.Errorf("%s: %s %q, want %s", tt.name, reply.status, reply.message, tt.status)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > tt.most {
			t.Errorf("%s: %d bytes were allocated, want at most %d", tt.name, n, tt.most)
		}
	}
}
