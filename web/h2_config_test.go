//lint:file-ignore SA1019 x/net is deprecated for programs; here it is the peer, and its knobs are needed

package web

import (
	"crypto/tls"
	"io"
	"net/http"
	"slices"
	"testing"

	"golang.org/x/net/http2"
)

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
