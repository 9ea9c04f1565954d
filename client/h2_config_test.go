package client

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// The fields of HTTP2Config have their effect. internal/mux tests each one on simulated time.
func TestHTTP2Config(t *testing.T) {
	settings := make(chan []http2.Setting, 1)
	pinged, kinds := make(chan bool, 1), make(chan string, 1)
	url := framed(t, func(fr *http2.Framer, f http2.Frame) {
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				var all []http2.Setting
				f.ForeachSetting(func(s http2.Setting) error { all = append(all, s); return nil })
				settings <- all
			}
		case *http2.PingFrame:
			if !f.IsAck() { // which remains without an answer
				pinged <- true
				fr.WriteRawFrame(http2.FramePing, 0, 0, nil)
			}
		}
	})
	tr := overClearH2(t, &Transport{HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 5, MaxReadFrameSize: 1 << 20,
		MaxDecoderHeaderTableSize: 1 << 10, MaxReceiveBufferPerStream: 100_000, SendPingTimeout: time.Millisecond,
		PingTimeout: 20 * time.Second, WriteByteTimeout: time.Minute, PermitProhibitedCipherSuites: true,
		MaxEncoderHeaderTableSize: 100, CountError: func(kind string) { kinds <- kind }}})
	if r, err := tr.RoundTrip(request(t, "GET", url, nil)); err == nil {
		t.Errorf("answered: %v", r.Status)
	}
	<-pinged
	if got := <-kinds; got != "conn_frame_size_error" {
		t.Errorf("CountError got %q", got)
	}
	all := <-settings
	for _, want := range []http2.Setting{{ID: http2.SettingMaxFrameSize, Val: 1 << 20},
		{ID: http2.SettingHeaderTableSize, Val: 1 << 10}, {ID: http2.SettingInitialWindowSize, Val: 100_000}} {
		if !slices.Contains(all, want) {
			t.Errorf("%v is not in %v", want, all)
		}
	}
	if slices.ContainsFunc(all, func(s http2.Setting) bool { return s.ID == http2.SettingMaxConcurrentStreams }) {
		t.Errorf("a client limits a server's streams: %v", all)
	}
}

// A server that answers no PING ends the requests after PingTimeout.
func TestHTTP2PingTimeout(t *testing.T) {
	url := framed(t, func(*http2.Framer, http2.Frame) {})
	tr := overClearH2(t, &Transport{HTTP2: &http.HTTP2Config{SendPingTimeout: time.Millisecond,
		PingTimeout: time.Millisecond}})
	r, err := tr.RoundTrip(request(t, "GET", url, nil))
	if err == nil {
		t.Errorf("answered: %v", r.Status)
	} else if err.Error() != "http2: client connection lost" { // programs look for it
		t.Error(err)
	}
}
