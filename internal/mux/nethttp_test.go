package mux

import (
	"net/http"
	"reflect"
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
