package h2

import "encoding/binary"

// Preface is what a client sends first (RFC 9113 section 3.4).
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// A Type is that of a frame (RFC 9113 section 6).
type Type uint8

const (
	Data           Type = 0
	Headers        Type = 1
	PriorityFrame  Type = 2
	ResetStream    Type = 3
	Settings       Type = 4
	PushPromise    Type = 5
	Ping           Type = 6
	GoAway         Type = 7
	WindowUpdate   Type = 8
	Continuation   Type = 9
	PriorityUpdate Type = 16 // RFC 9218 section 7.1
)

// Flags of frames; one bit has different meanings.
const (
	EndStream  uint8 = 1
	Ack        uint8 = 1
	EndHeaders uint8 = 4
	Padded     uint8 = 8
	HasWeight  uint8 = 32
)

const (
	// HeaderSize is the size of a frame without its payload.
	HeaderSize = 9
	// MinFrameSize is the least value of SETTINGS_MAX_FRAME_SIZE, and the initial one.
	MinFrameSize = 1 << 14
	// MaxFrameSize is its largest value.
	MaxFrameSize = 1<<24 - 1
)

// A Frame is a frame that has been parsed. Data is a part of the input.
type Frame struct {
	Type   Type
	Flags  uint8
	Stream uint32
	Length int    // of the payload, padding included: what counts for windows
	Data   []byte // without padding: data, a fragment of a field block, settings, opaque or debug data, a priority
	// Value is the code of RST_STREAM and GOAWAY, the increment of WINDOW_UPDATE, the stream of
	// PRIORITY_UPDATE and the dependency of PRIORITY.
	Value uint32
	Last  uint32 // the stream that GOAWAY names
}

// Has reports whether the frame has a flag.
func (f *Frame) Has(flag uint8) bool { return f.Flags&flag != 0 }

// Ping is the opaque data of a PING.
func (f *Frame) Ping() (data [8]byte) {
	copy(data[:], f.Data)
	return data
}

// Settings returns the payload of a SETTINGS frame, setting by setting.
func (f *Frame) Settings(yield func(Setting) bool) {
	for p := f.Data; len(p) >= settingSize; p = p[settingSize:] {
		if !yield(Setting{SettingID(binary.BigEndian.Uint16(p)), binary.BigEndian.Uint32(p[2:])}) {
			return
		}
	}
}

// ParseFrame parses the frame at the beginning of p, and returns its size; 0: it is not complete
// yet. size is the most that its payload may have. It checks the length before the payload is
// there. An error for a stream leaves n set, so that its caller can go on behind the frame.
func ParseFrame(p []byte, size int) (n int, f Frame, err error) {
	if len(p) < HeaderSize {
		return 0, f, nil
	}
	f.Length = int(p[0])<<16 | int(p[1])<<8 | int(p[2])
	f.Type, f.Flags = Type(p[3]), p[4]
	f.Stream = binary.BigEndian.Uint32(p[5:]) & (1<<31 - 1) // section 4.1: ignore the reserved bit
	if err := f.checkHeader(size); err != nil {
		return 0, f, err
	}
	if len(p)-HeaderSize < f.Length {
		return 0, f, nil
	}
	n = HeaderSize + f.Length
	f.Data = p[HeaderSize:n:n]
	return n, f, f.parse()
}

// fixedLengths are those of frames that have one.
var fixedLengths = map[Type]int{ResetStream: 4, Ping: 8, WindowUpdate: 4}

// checkHeader finds what is wrong whatever the payload is.
func (f *Frame) checkHeader(size int) error {
	// section 4.2: larger than SETTINGS_MAX_FRAME_SIZE; a stream error may be treated as one of the
	// connection (section 5.4.2)
	if f.Length > size {
		return connError(FrameSizeError, "a frame is larger than SETTINGS_MAX_FRAME_SIZE")
	}
	switch f.Type {
	case Data, Headers, PriorityFrame, ResetStream, PushPromise, Continuation: // sections 6.1 to 6.4, 6.6, 6.10
		if f.Stream == 0 {
			return connError(ProtocolError, "a frame that belongs to a stream has stream 0")
		}
	case Settings, Ping, GoAway, PriorityUpdate: // sections 6.5, 6.7, 6.8; RFC 9218 section 7.1
		if f.Stream != 0 {
			return connError(ProtocolError, "a frame that belongs to the connection has a stream")
		}
	}
	want, fixed := fixedLengths[f.Type]
	switch {
	case fixed && f.Length != want: // sections 6.4, 6.7, 6.9
		return connError(FrameSizeError, "RST_STREAM, PING or WINDOW_UPDATE has a wrong length")
	case f.Type == Settings && (f.Has(Ack) && f.Length != 0 || f.Length%settingSize != 0): // section 6.5
		return connError(FrameSizeError, "SETTINGS has a wrong length")
	case f.Type == GoAway && f.Length < 8, f.Type == PriorityUpdate && f.Length < 4:
		return connError(FrameSizeError, "GOAWAY or PRIORITY_UPDATE is too short")
	}
	return nil
}

// parse takes the payload apart.
func (f *Frame) parse() error {
	switch f.Type {
	case Data:
		return f.unpad()
	case Headers:
		return f.parseHeaders()
	case PriorityFrame: // section 6.3
		if f.Length != 5 {
			return streamError(FrameSizeError, f.Stream, "PRIORITY has a wrong length")
		}
		return f.depends(f.Data)
	case ResetStream:
		f.Value = binary.BigEndian.Uint32(f.Data)
	case GoAway:
		f.Last = binary.BigEndian.Uint32(f.Data) & (1<<31 - 1)
		f.Value = binary.BigEndian.Uint32(f.Data[4:])
		f.Data = f.Data[8:]
	case WindowUpdate:
		f.Value = binary.BigEndian.Uint32(f.Data) & (1<<31 - 1)
		if f.Value == 0 { // section 6.9
			return streamError(ProtocolError, f.Stream, "WINDOW_UPDATE with an increment of 0")
		}
	case PriorityUpdate:
		f.Value = binary.BigEndian.Uint32(f.Data) & (1<<31 - 1)
		f.Data = f.Data[4:]
		if f.Value == 0 { // RFC 9218 section 7.1
			return connError(ProtocolError, "PRIORITY_UPDATE for stream 0")
		}
	}
	return nil
}

// unpad takes off the padding (sections 6.1 and 6.2).
func (f *Frame) unpad() error {
	if !f.Has(Padded) {
		return nil
	}
	if len(f.Data) == 0 {
		return connError(FrameSizeError, "a padded frame has no pad length")
	}
	pad := int(f.Data[0])
	f.Data = f.Data[1:]
	if pad > len(f.Data) {
		return connError(ProtocolError, "a frame has more padding than payload")
	}
	f.Data = f.Data[: len(f.Data)-pad : len(f.Data)-pad]
	return nil
}

func (f *Frame) parseHeaders() error {
	if err := f.unpad(); err != nil || !f.Has(HasWeight) {
		return err
	}
	if len(f.Data) < 5 {
		return connError(FrameSizeError, "HEADERS is too short for its priority")
	}
	err := f.depends(f.Data)
	f.Data = f.Data[5:]
	return err
}

// depends reads the dependency of RFC 7540, which has no effect any more. A stream that depends on
// itself was an error of the stream (RFC 7540 section 5.3.1), and still is here: servers that are
// older than RFC 9113 reset it, too.
func (f *Frame) depends(p []byte) error {
	f.Value = binary.BigEndian.Uint32(p) & (1<<31 - 1)
	if f.Value == f.Stream {
		return streamError(ProtocolError, f.Stream, "a stream depends on itself")
	}
	return nil
}
