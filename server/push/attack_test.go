package push_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"runtime"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
)

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
