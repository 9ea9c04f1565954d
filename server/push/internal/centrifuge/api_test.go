package centrifuge

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push/internal/prototest"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// apiMethodNames are the methods that the definitions have.
var apiMethodNames = []string{"Publish", "Broadcast", "Subscribe", "Unsubscribe", "Disconnect", "Refresh", "Presence",
	"PresenceStats", "History", "HistoryRemove", "Info", "Channels", "Connections", "Batch", "RPC", "Unserved"}

// randomMessage fills about half of the fields, down to that depth.
func randomMessage(d protoreflect.MessageDescriptor, r *rand.Rand, depth int) *dynamicpb.Message {
	m := dynamicpb.NewMessage(d)
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if r.IntN(2) == 0 || f.Message() != nil && depth == 0 {
			continue
		}
		switch {
		case f.IsMap():
			values := m.Mutable(f).Map()
			for i := range 1 + r.IntN(3) {
				key := protoreflect.ValueOfString(fmt.Sprint("key ", i)).MapKey()
				values.Set(key, randomValue(f.MapValue(), r, depth))
			}
		case f.IsList():
			values := m.Mutable(f).List()
			for range 1 + r.IntN(3) {
				values.Append(randomValue(f, r, depth))
			}
		default:
			m.Set(f, randomValue(f, r, depth))
		}
	}
	if b64, data := d.Fields().ByName("b64data"), d.Fields().ByName("data"); b64 != nil && m.Has(data) {
		m.Clear(b64)
	}
	return m
}

// randomValue returns a value, which is not the zero value.
func randomValue(f protoreflect.FieldDescriptor, r *rand.Rand, depth int) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return protoreflect.ValueOfMessage(randomMessage(f.Message(), r, depth-1))
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("x" + word(r))
	case protoreflect.BytesKind:
		if f.Name() == "data" {
			return protoreflect.ValueOfBytes([]byte{byte(r.Uint32()), 0xff, byte(r.Uint32())})
		}
		return protoreflect.ValueOfBytes(fmt.Appendf(nil, `{"n":[%d,"ä"]}`, r.IntN(100)))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(1 + r.Uint32()>>(1+r.IntN(31)))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(1 + r.Uint64()>>(1+r.IntN(63)))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(-1 - r.Int32())
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(-1 - r.Int64())
	}
	panic(f.Kind())
}

// object returns what the JSON form of m has, with the given name for data.
func object(m protoreflect.Message, data string) map[string]any {
	return prototest.Object(m, func(name string, p []byte) (string, any) {
		if name == "data" {
			return data, base64.StdEncoding.EncodeToString(p)
		}
		return name, json.RawMessage(p)
	})
}

// plain returns what the JSON says, without members that have a zero value.
func plain(t *testing.T, text []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil || d.More() {
		t.Fatalf("%s: %v", text, err)
	}
	return withoutZeros(v)
}

func withoutZeros(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, one := range v {
			if one = withoutZeros(one); one == false || one == "" || one == json.Number("0") {
				delete(v, name)
			}
		}
	case []any:
		for i := range v {
			withoutZeros(v[i])
		}
	}
	return v
}

// Requests and responses with random values keep them when they are converted. Another
// implementation of Protobuf writes the requests and reads the responses.
func TestAPIConversionKeepsValues(t *testing.T) {
	d := prototest.Messages(t, APIDefinitions)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 700 {
		method := apiMethodNames[i%len(apiMethodNames)]
		m := randomMessage(d.ByName(protoreflect.Name(method+"Request")), r, 5)
		p, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := APIRequest(method, append(p, "\xfa\x3f\x01x\xf8\x3f\x05"...)) // and two unknown fields
		want, _ := json.Marshal(object(m, "b64data"))
		if err != nil || !reflect.DeepEqual(plain(t, got), plain(t, want)) {
			t.Fatalf("%s: %v\n got %s\nwant %s", method, err, got, want)
		}

		m = randomMessage(d.ByName(protoreflect.Name(method+"Response")), r, 5)
		body := object(m, "data")
		body["num_unknown"] = 1
		text, _ := json.Marshal(body)
		p, err = APIResponse(method, text)
		back := dynamicpb.NewMessage(m.Descriptor())
		if err := errors.Join(err, proto.Unmarshal(p, back)); err != nil || !proto.Equal(m, back) {
			t.Fatalf("%s: %s: %v\n got %v\nwant %v", method, text, err, back, m)
		}
	}
}

// Repeated, merged, missing and empty fields become the JSON that the HTTP API expects.
func TestAPIRequests(t *testing.T) {
	for _, tt := range []struct{ method, message, want string }{
		{"Info", "", `{}`},
		{"Publish", "\x0a\x04news\x12\x011", `{"channel":"news","b64data":"MQ=="}`},
		{"Publish", "\x12\x011\x0a\x01a\x0a\x04last\x12\x012", `{"channel":"last","b64data":"Mg=="}`},
		{"Publish", "\x12\x00\x1a\x00", `{"b64data":""}`},
		{"Publish", "\x12\x011\x1a\x00", `{"b64data":"MQ=="}`},
		{"Publish", "\x2a\x06\x0a\x01k\x12\x01v\x20\x01\x2a\x02\x12\x00",
			`{"skip_history":true,"tags":{"k":"v","":""}}`},
		{"Broadcast", "\x0a\x01a\x12\x011\x0a\x00", `{"channels":["a",""],"b64data":"MQ=="}`},
		{"History", "\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x1a\x02\x08\x05\x1a\x03\x12\x01e",
			`{"limit":-1,"since":{"offset":5,"epoch":"e"}}`},
		{"History", "\x1a\x00", `{"since":{}}`},
		{"Subscribe", "\x52\x02\x0a\x00\x22\x08{\"a\": 1}\x2a\x00",
			`{"info":{"a": 1},"b64info":"","override":{"presence":{}}}`},
		{"Subscribe", "\x22\x00", `{}`},
		{"Disconnect", "\x22\x01a\x22\x01b\x32\x04\x0a\x02or", `{"whitelist":["a","b"],"label_filter":{"op":"or"}}`},
		{"MapPublish", "\x0a\x04news\x12\x011", `{}`},
		{"Batch", "\x0a\x05\xa2\x02\x02\x0a\x00\x0a\x00\x10\x01\x0a\x06\x22\x04\x0a\x02ab",
			`{"commands":[{"map_publish":{}},{},{"publish":{"channel":"ab"}}],"parallel":true}`},
	} {
		if got, err := APIRequest(tt.method, []byte(tt.message)); err != nil || string(got) != tt.want {
			t.Errorf("%s %x: %v\n got %s\nwant %s", tt.method, tt.message, err, got, tt.want)
		}
	}
}

// A malformed message is refused. If a field has a value that its method does not accept, the error
// is an APIFieldError, which names the field.
func TestAPIRequestErrors(t *testing.T) {
	deep := ""
	for range maxAPIDepth {
		deep = "\x32" + string(appendLength(nil, len(deep))) + deep
	}
	for _, tt := range []struct{ method, message, want string }{
		{"Publish", "\x12\x011\x1a\x04Mg==", "data and b64data are both given: use one"},
		{"Subscribe", "\x22\x01{", "info is not JSON"},
		{"Refresh", "\x2a\x011\x2a\x01x", "info is not JSON"},
		{"Batch", "\x0a\x08\x22\x06\x12\x011\x1a\x01x", "data and b64data are both given: use one"},
		{"Publish", "\x0a\x05news", ""},
		{"Publish", "\x0a\x01\xff", ""},
		{"Publish", "\x08\x01", ""},
		{"Publish", "\x10\x01", ""},
		{"Publish", "\x22\x011", ""},
		{"Publish", "\x42\x011", ""},
		{"Publish", "\x28\x01", ""},
		{"Publish", "\x2a\x03\x0a\x01\xff", ""},
		{"History", "\x18\x01", ""},
		{"History", "\x12\x01a", ""},
		{"Batch", "\x08\x01", ""},
		{"Subscribe", "\x1a\x01a", ""},
		{"Unsubscribe", "\x2a" + string(appendLength(nil, len(deep))) + deep, ""},
	} {
		got, err := APIRequest(tt.method, []byte(tt.message))
		var field APIFieldError
		if err == nil || errors.As(err, &field) != (tt.want != "") || string(field) != tt.want {
			t.Errorf("%s %x: %s, %v, want %q", tt.method, tt.message, got, err, tt.want)
		}
	}
	for _, body := range []string{``, `5`, `{"result":5}`, `{"result":{"epoch":5}}`, `{"result":{"offset":"5"}}`,
		`{"result":{"offset":-5}}`} {
		if got, err := APIResponse("Publish", []byte(body)); err == nil {
			t.Errorf("%s: %x and no error", body, got)
		}
	}
}

func TestAPIErrorDetails(t *testing.T) {
	d := prototest.Messages(t, "\nStatus code=1:int32 message=2:string details=3:*Any\n"+
		"Any type_url=1:string value=2:bytes\nError code=1:uint32 message=2:string\n")
	const apiError = `details:{type_url:"type.googleapis.com/centrifugal.centrifugo.api.Error" value:`
	const retryInfo = ` details:{type_url:"type.googleapis.com/google.rpc.RetryInfo" value:`
	for _, tt := range []struct {
		status, code uint32
		message      string
		retry        int64
		want         string
	}{
		{3, 107, "bad request", 0, `code:3 message:"bad request" ` + apiError + `"\x08k\x12\x0bbad request"}`},
		{14, 111, "later", 2500, `code:14 message:"later" ` + apiError + `"\x08o\x12\x05later"}` +
			retryInfo + `"\n\x08\x08\x02\x10\x80ʵ\xee\x01"}`}, // 2 s and 500,000,000 ns
		{14, 111, "later", 60_000, `code:14 message:"later" ` + apiError + `"\x08o\x12\x05later"}` +
			retryInfo + `"\n\x02\x08<"}`},
	} {
		status := dynamicpb.NewMessage(d.ByName("Status"))
		if err := proto.Unmarshal(APIErrorDetails(tt.status, tt.code, tt.message, tt.retry), status); err != nil {
			t.Fatal(err)
		}
		if got := strings.ReplaceAll(fmt.Sprint(status), "  ", " "); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}

func FuzzAPIRequest(f *testing.F) {
	for i := range apiMethodNames {
		f.Add(uint8(i), []byte("\x0a\x04news\x12\x02{}\x2a\x06\x0a\x01k\x12\x01v"))
	}
	f.Add(uint8(13), []byte("\x0a\x08\x22\x06\x0a\x01a\x12\x011\x10\x01"))
	d := prototest.Messages(f, APIDefinitions)
	f.Fuzz(func(t *testing.T, i uint8, p []byte) {
		method := apiMethodNames[int(i)%len(apiMethodNames)]
		got, err := APIRequest(method, p)
		if err != nil {
			return
		}
		m := dynamicpb.NewMessage(d.ByName(protoreflect.Name(method + "Request")))
		if err := proto.Unmarshal(p, m); err != nil {
			t.Fatalf("%s %x becomes %s, but it is malformed: %v", method, p, got, err)
		}
		want, _ := json.Marshal(object(m, "b64data"))
		if !reflect.DeepEqual(plain(t, got), plain(t, want)) {
			t.Fatalf("%s %x:\n got %s\nwant %s", method, p, got, want)
		}
	})
}
