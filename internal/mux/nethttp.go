package mux

import (
	"math"
	"net/http"

	"github.com/myriad-go/myriad/internal/h2"
)

// Take has c mean in cfg what net/http gives it; values that net/http calls invalid have no effect.
// MaxEncoderHeaderTableSize holds as it is: the encoder uses no dynamic table.
// StrictMaxConcurrentRequests and PermitProhibitedCipherSuites are the owner's business.
func (cfg *Config) Take(c *http.HTTP2Config) {
	if c == nil {
		return
	}
	if !cfg.Client {
		take(&cfg.Streams, c.MaxConcurrentStreams, 1, math.MaxInt32)
	}
	take(&cfg.Window, c.MaxReceiveBufferPerStream, 1, 4<<20-1)
	take(&cfg.ConnWindow, c.MaxReceiveBufferPerConnection, 64<<10, 4<<20-1)
	take(&cfg.HeaderTable, c.MaxDecoderHeaderTableSize, 1, 4<<20-1)
	take(&cfg.ReadFrame, min(c.MaxReadFrameSize, h2.MaxFrameSize), h2.MinFrameSize, h2.MaxFrameSize)
	cfg.SendPing, cfg.PingTimeout, cfg.WriteStall = c.SendPingTimeout, c.PingTimeout, c.WriteByteTimeout
	cfg.CountError = c.CountError
}

func take(to *int, n, least, most int) {
	if least <= n && n <= most {
		*to = n
	}
}
