package mux

import "github.com/myriad-go/myriad/internal/h2"

// peerSettings is section 6.5: they take effect in order, then one ACK says so.
func (c *Conn) peerSettings(f *h2.Frame) error {
	if f.Has(h2.Ack) {
		if c.is(acked) {
			return c.glitch(1)
		}
		c.bits |= acked
		c.limitTable()
		c.Timers.Set(c.c, handshakeTimer, 0)
		return nil
	}
	if !c.is(gotSettings) {
		c.peerMax = usualStreams
	}
	count := 0
	for s := range f.Settings {
		if count++; count > maxSettings {
			return c.connError(h2.EnhanceYourCalm, "too many settings in one frame")
		}
		if err := c.setting(s); err != nil {
			return err
		}
	}
	if !c.is(gotSettings) {
		c.bits = c.bits&^heardMore | gotSettings
		if c.cfg.Client { // some servers acknowledge ours with their first response, however late that is
			c.Timers.Set(c.c, handshakeTimer, 0)
		}
	} else if err := c.glitch(settingsCost); err != nil {
		return err
	}
	c.act.control = h2.AppendSettingsAck(c.act.control)
	c.act.controls++
	c.owner.Settings()
	return nil
}

func (c *Conn) setting(s h2.Setting) error {
	if err := s.Check(); err != nil {
		return err
	}
	switch s.ID {
	case h2.HeaderTableSize:
		c.bits |= owesForget // our encoder has no table
	case h2.EnablePush:
		if c.cfg.Client && s.Value != 0 { // section 6.5.2
			return c.connError(h2.ProtocolError, "a server enables push")
		}
	case h2.MaxConcurrentStreams:
		c.peerMax = s.Value
		c.openAllowed()
	case h2.MaxHeaderListSize:
		c.peerList = s.Value
	case h2.InitialWindowSize:
		return c.initialWindow(int32(s.Value))
	case h2.EnableConnectProtocol:
		if s.Value == 0 && c.is(peerConnect) { // RFC 8441 section 3
			return c.connError(h2.ProtocolError, "the extended CONNECT is taken back")
		}
		if s.Value == 1 {
			c.bits |= peerConnect
		}
	}
	return nil
}

// initialWindow changes the windows of all streams, which may become negative (section 6.9.2).
func (c *Conn) initialWindow(n int32) error {
	by := int64(n) - int64(c.peerWindow)
	c.peerWindow = n
	for _, s := range c.open() {
		sum, ok := h2.AddWindow(s.send, by)
		if !ok {
			return c.connError(h2.FlowControlError, "a setting makes a stream's window too large")
		}
		s.send = sum
		c.enqueue(s)
	}
	return nil
}
