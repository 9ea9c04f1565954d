//lint:file-ignore SA1019 x/net is deprecated for programs; here it is the peer, and its knobs are needed

package web

import (
	"crypto/tls"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"

	muxed "github.com/myriad-go/myriad/web/internal/http2"
)

// The fields of HTTP2Config have their effect. internal/mux tests each one on simulated time.
func TestHTTP2Config(t *testing.T) {
	kinds := make(chan string, 10)
	f, _ := serveHTTP2(t, &Server{Handler: http.HandlerFunc(hello), HTTP2: &http.HTTP2Config{
		MaxConcurrentStreams: 7, MaxReadFrameSize: 1 << 20, MaxDecoderHeaderTableSize: 1 << 10,
		MaxEncoderHeaderTableSize: 100, MaxReceiveBufferPerStream: 100_000, SendPingTimeout: time.Millisecond,
		PingTimeout: 20 * time.Second, WriteByteTimeout: time.Minute, CountError: func(kind string) { kinds <- kind },
	}})
	_, fr := rawHTTP2(t, f)
	frame, err := fr.ReadFrame()
	settings, ok := frame.(*http2.SettingsFrame)
	if !ok {
		t.Fatal(frame, err)
	}
	for id, want := range map[http2.SettingID]uint32{http2.SettingMaxConcurrentStreams: 7,
		http2.SettingMaxFrameSize: 1 << 20, http2.SettingHeaderTableSize: 1 << 10,
		http2.SettingInitialWindowSize: 100_000} {
		if got, _ := settings.Value(id); got != want {
			t.Errorf("%v is %d, want %d", id, got, want)
		}
	}
	for pinged := false; !pinged; {
		if frame, err = fr.ReadFrame(); err != nil {
			t.Fatal(err)
		}
		p, ok := frame.(*http2.PingFrame)
		pinged = ok && !p.IsAck()
	}
	fr.WriteRawFrame(http2.FramePing, 0, 0, nil)
	if code, _ := untilGoAway(t, fr); code != http2.ErrCodeFrameSize {
		t.Errorf("GOAWAY %v", code)
	}
	if got := <-kinds; got != "conn_frame_size_error" {
		t.Errorf("CountError got %q", got)
	}
}

// PermitProhibitedCipherSuites admits a client that RFC 9113 section 9.2.2 has the server refuse.
func TestHTTP2ProhibitedCipherSuites(t *testing.T) {
	weak := []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}
	for _, permit := range []bool{false, true} {
		s := &Server{Handler: http.HandlerFunc(hello), HTTP2: &http.HTTP2Config{PermitProhibitedCipherSuites: permit}}
		config := trusting()
		config.MaxVersion, config.CipherSuites, config.NextProtos = tls.VersionTLS12, weak, []string{"h2"}
		c := serveTLS(t, s).dialTLS(t, config)
		io.WriteString(c, http2.ClientPreface)
		fr := http2.NewFramer(c, c)
		fr.WriteSettings()
		openStream(fr, 1, true)
		var types []http2.FrameType
		for !slices.Contains(types, http2.FrameData) && !slices.Contains(types, http2.FrameGoAway) {
			frame, err := fr.ReadFrame()
			if err != nil {
				t.Fatalf("permitted %v: %v", permit, err)
			}
			types = append(types, frame.Header().Type)
		}
		if answered := slices.Contains(types, http2.FrameData); answered != permit {
			t.Errorf("permitted %v: %v", permit, types)
		}
	}
}

// The connection's window is MaxReceiveBufferPerConnection, but not less than an eighth of those of
// all streams.
func TestHTTP2ConnWindow(t *testing.T) {
	for _, c := range []struct{ window, streams, want int }{
		{64 << 10, 8, 64 << 10}, {1 << 20, 8, 1 << 20}, {64 << 10, 250, 250 * muxed.StreamWindow / 8},
	} {
		f, _ := serveHTTP2(t, &Server{HTTP2: &http.HTTP2Config{MaxReceiveBufferPerConnection: c.window,
			MaxConcurrentStreams: c.streams}})
		_, fr := rawHTTP2(t, f)
		got := 0
		for got == 0 {
			frame, err := fr.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if w, ok := frame.(*http2.WindowUpdateFrame); ok {
				got = 1<<16 - 1 + int(w.Increment)
			}
		}
		if got != c.want {
			t.Errorf("MaxReceiveBufferPerConnection %d: a window of %d, want %d", c.window, got, c.want)
		}
	}
}
