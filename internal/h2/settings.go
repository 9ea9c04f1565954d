package h2

import "encoding/binary"

// A SettingID names a setting (RFC 9113 section 6.5.2).
type SettingID uint16

const (
	HeaderTableSize       SettingID = 1
	EnablePush            SettingID = 2
	MaxConcurrentStreams  SettingID = 3
	InitialWindowSize     SettingID = 4
	MaxFrameSizeSetting   SettingID = 5
	MaxHeaderListSize     SettingID = 6
	EnableConnectProtocol SettingID = 8 // RFC 8441 section 3
	NoRFC7540Priorities   SettingID = 9 // RFC 9218 section 2.1
)

// A Setting is one entry of a SETTINGS frame.
type Setting struct {
	ID    SettingID
	Value uint32
}

const settingSize = 6

// Check refuses values that a setting must not have.
func (s Setting) Check() error {
	switch {
	case (s.ID == EnablePush || s.ID == EnableConnectProtocol || s.ID == NoRFC7540Priorities) && s.Value > 1:
		return connError(ProtocolError, "a setting that is 0 or 1 has another value")
	case s.ID == InitialWindowSize && s.Value > MaxWindow:
		return connError(FlowControlError, "SETTINGS_INITIAL_WINDOW_SIZE is too large")
	case s.ID == MaxFrameSizeSetting && (s.Value < MinFrameSize || s.Value > MaxFrameSize):
		return connError(ProtocolError, "SETTINGS_MAX_FRAME_SIZE is out of range")
	}
	return nil
}

const (
	// InitialWindow is a window's size before any setting (RFC 9113 section 6.9.2).
	InitialWindow = 1<<16 - 1
	// MaxWindow is a window's largest size (section 6.9.1).
	MaxWindow = 1<<31 - 1
)

// AddWindow adds a change to a window; a window may become negative by a setting (section 6.9.2),
// never larger than MaxWindow.
func AddWindow(w int32, by int64) (sum int32, ok bool) {
	n := int64(w) + by
	if n > MaxWindow || n < -MaxWindow {
		return w, false
	}
	return int32(n), true
}

// AppendHeader appends the header of a frame.
func AppendHeader(dst []byte, length int, t Type, flags uint8, stream uint32) []byte {
	dst = append(dst, byte(length>>16), byte(length>>8), byte(length), byte(t), flags)
	return binary.BigEndian.AppendUint32(dst, stream)
}

// AppendSettings appends a SETTINGS frame.
func AppendSettings(dst []byte, settings ...Setting) []byte {
	dst = AppendHeader(dst, settingSize*len(settings), Settings, 0, 0)
	for _, s := range settings {
		dst = binary.BigEndian.AppendUint16(dst, uint16(s.ID))
		dst = binary.BigEndian.AppendUint32(dst, s.Value)
	}
	return dst
}

// AppendSettingsAck appends the acknowledgement of a SETTINGS frame.
func AppendSettingsAck(dst []byte) []byte { return AppendHeader(dst, 0, Settings, Ack, 0) }

// AppendPing appends a PING, or the answer to one.
func AppendPing(dst []byte, data [8]byte, ack bool) []byte {
	flags := uint8(0)
	if ack {
		flags = Ack
	}
	return append(AppendHeader(dst, 8, Ping, flags, 0), data[:]...)
}

// AppendGoAway appends a GOAWAY: streams above last were not processed.
func AppendGoAway(dst []byte, last uint32, code Code, debug string) []byte {
	dst = AppendHeader(dst, 8+len(debug), GoAway, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, last)
	dst = binary.BigEndian.AppendUint32(dst, uint32(code))
	return append(dst, debug...)
}

// AppendReset appends a RST_STREAM.
func AppendReset(dst []byte, stream uint32, code Code) []byte {
	return binary.BigEndian.AppendUint32(AppendHeader(dst, 4, ResetStream, 0, stream), uint32(code))
}

// AppendWindowUpdate appends a WINDOW_UPDATE.
func AppendWindowUpdate(dst []byte, stream uint32, by int) []byte {
	return binary.BigEndian.AppendUint32(AppendHeader(dst, 4, WindowUpdate, 0, stream), uint32(by))
}

// AppendPriorityUpdate appends a PRIORITY_UPDATE.
func AppendPriorityUpdate(dst []byte, stream uint32, value string) []byte {
	dst = binary.BigEndian.AppendUint32(AppendHeader(dst, 4+len(value), PriorityUpdate, 0, 0), stream)
	return append(dst, value...)
}

// AppendHeaders appends a field block as HEADERS and as many CONTINUATION as it needs with payloads
// of at most size bytes. end: the stream ends with it.
func AppendHeaders(dst []byte, stream uint32, block []byte, end bool, size int) []byte {
	t, flags := Headers, uint8(0)
	if end {
		flags = EndStream
	}
	for {
		n := min(len(block), size)
		if n == len(block) {
			flags |= EndHeaders
		}
		dst = append(AppendHeader(dst, n, t, flags, stream), block[:n]...)
		if block = block[n:]; len(block) == 0 {
			return dst
		}
		t, flags = Continuation, 0
	}
}
