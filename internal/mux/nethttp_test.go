package mux

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/h2"
)

// taken is a Config with the settings of net/http.
func taken(c http.HTTP2Config) (cfg Config) {
	cfg.Take(&c)
	return cfg
}

// Values that net/http calls valid are taken, others are not.
func TestTake(t *testing.T) {
	var got, defaults Config
	defaults.Take(nil)
	got.Take(&http.HTTP2Config{MaxConcurrentStreams: -1, MaxReceiveBufferPerStream: 4 << 20, MaxReadFrameSize: 1000,
		MaxReceiveBufferPerConnection: 1000, MaxDecoderHeaderTableSize: 4 << 20})
	if !reflect.DeepEqual(got, defaults) {
		t.Errorf("invalid values: %+v", got)
	}
	valid := http.HTTP2Config{MaxConcurrentStreams: 7, MaxReceiveBufferPerStream: 1000, MaxReadFrameSize: 16 << 20,
		MaxReceiveBufferPerConnection: 64 << 10, MaxDecoderHeaderTableSize: 100, SendPingTimeout: 1, PingTimeout: 2,
		WriteByteTimeout: 3}
	want := Config{Streams: 7, Window: 1000, ReadFrame: h2.MaxFrameSize, ConnWindow: 64 << 10, HeaderTable: 100,
		SendPing: 1, PingTimeout: 2, WriteStall: 3}
	want.Take(nil)
	if got := taken(valid); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := (Config{Client: true}); true {
		if got.Take(&valid); got.Streams != defaults.Streams {
			t.Errorf("MaxConcurrentStreams of a client: %d", got.Streams)
		}
	}
}

// MaxReadFrameSize is announced, and holds. The header of a large frame takes no memory.
func TestReadFrame(t *testing.T) {
	r := newRig(t, taken(http.HTTP2Config{MaxReadFrameSize: 50_000}))
	if !slices.Contains(r.cfg.settings(), h2.Setting{ID: h2.MaxFrameSizeSetting, Value: 50_000}) {
		t.Errorf("our settings are %v", r.cfg.settings())
	}
	r.greet()
	r.write(headers(1, getBlock, false), data(1, strings.Repeat("x", 50_000), false)[:h2.HeaderSize+10])
	r.settle()
	if p := r.conn.act.partial; p == nil || p.Len()+p.Free() > 32<<10 {
		t.Error("the header of a frame has taken its memory")
	}
	r.write([]byte(strings.Repeat("x", 49_990)))
	r.settle()
	if n := r.conn.streams[1].in.Len(); n != 50_000 {
		t.Errorf("%d bytes have come", n)
	}
	r.write(h2.AppendHeader(nil, 50_001, h2.Data, 0, 1))
	r.want("GOAWAY 1 FRAME_SIZE_ERROR")
}

// MaxDecoderHeaderTableSize is announced, and holds when the peer has acknowledged it.
func TestHeaderTable(t *testing.T) {
	for _, size := range []int{100, 10_000} {
		r := newRig(t, taken(http.HTTP2Config{MaxDecoderHeaderTableSize: size}))
		if !slices.Contains(r.cfg.settings(), h2.Setting{ID: h2.HeaderTableSize, Value: uint32(size)}) {
			t.Errorf("our settings are %v", r.cfg.settings())
		}
		r.greet()
		update := []byte("\x3f\x45") // 100: 31 and 69
		if size == 10_000 {
			update = []byte("\x3f\xf1\x4d")
		}
		r.write(headers(1, append(update, getBlock...), true))
		r.settle()
		if len(r.conn.streams) != 1 {
			t.Fatalf("%d: no request", size)
		}
		reply(r.conn.streams[1], "")
		r.want("HEADERS 1")
		r.write(headers(3, append([]byte("\x3f\xf2\x4d"), getBlock...), true)) // 10,001
		r.want("GOAWAY 1 COMPRESSION_ERROR")
	}
	r := newRig(t, taken(http.HTTP2Config{MaxDecoderHeaderTableSize: 100}))
	r.greet()
	r.write(headers(1, getBlock, true)) // RFC 7541 section 4.2: an update is missing
	r.want("GOAWAY 0 COMPRESSION_ERROR")
}

// WriteByteTimeout ends a connection that takes no output, not one that takes it slowly.
func TestWriteStall(t *testing.T) {
	r := newRig(t, taken(http.HTTP2Config{WriteByteTimeout: 10 * time.Second}))
	r.greet(h2.Setting{ID: h2.InitialWindowSize, Value: h2.MaxWindow})
	r.write(h2.AppendWindowUpdate(nil, 0, 1<<30), headers(1, getBlock, true))
	r.settle()
	s := r.conn.streams[1]
	s.SetLimit(8 << 20)
	if err := s.Put(pairs(":status", "200"), make([]byte, 4<<20), true); err != nil {
		t.Fatal(err)
	}
	for range 4 { // which takes longer than the limit
		r.peer.StopReading()
		r.RunFor(8 * time.Second)
		r.peer.Resume()
		r.RunFor(time.Millisecond)
	}
	if r.conn.gone {
		t.Fatal("a slow client is gone")
	}
	r.peer.StopReading()
	r.RunFor(25 * time.Second)
	if r.conn.Conn.c.Queued() == 0 && !r.conn.gone {
		t.Fatal("nothing was queued: this shows nothing")
	}
	if !r.conn.gone || r.cfg.Counters.Stalled.Load() != 1 {
		t.Errorf("a client that reads nothing: gone %v, counted %d", r.conn.gone, r.cfg.Counters.Stalled.Load())
	}
	s.Release()
	r.peer.Resume()
}

// CountError is told of what ends a stream and the connection.
func TestCountError(t *testing.T) {
	var kinds []string
	r := newRig(t, taken(http.HTTP2Config{CountError: func(kind string) { kinds = append(kinds, kind) }}))
	r.greet()
	r.write(headers(1, block(":method", "GET"), true))
	r.want("RST_STREAM 1 PROTOCOL_ERROR")
	r.write(frame(h2.Ping, 0, 0, "123"))
	r.settle()
	if want := []string{"stream_protocol_error", "conn_frame_size_error"}; !slices.Equal(kinds, want) {
		t.Errorf("got %q, want %q", kinds, want)
	}
}
