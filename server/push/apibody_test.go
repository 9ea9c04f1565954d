package push

import (
	"bytes"
	"encoding/json"
	"testing"
)

// If plainPublish accepts a body, encoding/json parses it to the same request.
func FuzzPlainPublish(f *testing.F) {
	plain := 0
	for _, body := range []string{
		`{"channel":"news","data":1}`, `{"channel": "news", "data": {"a": [1, "}"]}}`,
		`{"channel":"a b~","data":null }`, `{"channel":"","data":"x"}`,
	} {
		if _, ok := plainPublish([]byte(body)); ok {
			plain++
		}
		f.Add([]byte(body))
	}
	if plain != 4 {
		f.Errorf("only %d of 4 are plain", plain)
	}
	for _, body := range []string{
		`{"channel":"n\u0065ws","data":1}`, `{"channel":"n\"","data":1}`, `{"channel":"a","data":1,"data":2}`,
		`{"channel":"a","data":}`,
		`{"channel":"a","data":{}`, `{"channel":"a","data":1}}`, `{"channel":"a","data":1,"channel":"b"}`,
		`{"channel":"\xff","data":1}`,
		`{"data":1,"channel":"a"}`, `{"channel":"a"}`, `{"channel":"a" ,"data":1}`, `{"channel":"\n","data":1}`,
		`{"channel":"a","data":1} x`,
	} {
		if req, ok := plainPublish([]byte(body)); ok {
			f.Errorf("plainPublish accepts %s: %q, %s", body, req.Channel, req.Data)
		}
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, ok := plainPublish(body)
		if !ok {
			return
		}
		var want apiRequest
		if err := json.Unmarshal(body, &want); err != nil || got.Channel != want.Channel ||
			!bytes.Equal(got.Data, want.Data) {
			t.Errorf("%q is %q and %q, and for encoding/json %q and %q, %v", body, got.Channel, got.Data, want.Channel,
				want.Data, err)
		}
	})
}
