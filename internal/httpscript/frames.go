package httpscript

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
)

// ErrNoFrame is what Frame returns for a verb that is no frame's.
var ErrNoFrame = errors.New("no such frame")

// Frame is the bytes of an HTTP/2 frame that a line says:
//
//	PREFACE
//	SETTINGS [NAME=N...], SETTINGS ACK
//	HEADERS STREAM [FIELD...] [END]    a field is name=value; END ends the stream
//	DATA STREAM [TEXT] [END]
//	PING [ACK] [DATA], RST_STREAM STREAM CODE, GOAWAY LAST CODE [DEBUG], WINDOW_UPDATE STREAM N
//	PRIORITY STREAM OTHER              it depends on the other one
//	PRIORITY_UPDATE STREAM VALUE
//	FRAME TYPE FLAGS STREAM [TEXT...]  any frame; flags are a number, or names with | between them
//	HEADER LENGTH TYPE FLAGS STREAM    the header of a frame whose payload is to follow
//	BYTES TEXT...
//
// Field blocks and TEXT may have $get for those of GET http://h/, $ok for those of a 200, and a
// part of these: $get[:2]. In a field block +TEXT is bytes as they are. Names of settings, codes
// and flags are the RFC's, or numbers.
func Frame(verb string, args []string) (p []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			p, err = nil, fmt.Errorf("%s %q: %v", verb, args, v)
		}
	}()
	arg := func(i int) string {
		if i >= len(args) {
			panic(fmt.Sprint("word ", i+1, " is missing"))
		}
		return args[i]
	}
	texts := func(from int) (p []byte) {
		for _, word := range args[min(from, len(args)):] {
			p = append(p, part(word)...)
		}
		return p
	}
	end := len(args) > 0 && args[len(args)-1] == "END"
	if end && verb != "BYTES" {
		args = args[:len(args)-1]
	}
	switch verb {
	case "PREFACE":
		return []byte(h2.Preface), nil
	case "BYTES":
		return texts(0), nil
	case "FRAME":
		return append(h2.AppendHeader(nil, len(texts(3)), frameType(arg(0)), flags(arg(1)), number(arg(2))),
			texts(3)...), nil
	case "HEADER":
		return h2.AppendHeader(nil, int(number(arg(0))), frameType(arg(1)), flags(arg(2)), number(arg(3))), nil
	case "SETTINGS":
		if len(args) > 0 && args[0] == "ACK" {
			return h2.AppendSettingsAck(nil), nil
		}
		all, err := FrameSettings(args)
		return h2.AppendSettings(nil, all...), err
	case "HEADERS":
		return h2.AppendHeaders(nil, number(arg(0)), Block(args[1:]), end, h2.MinFrameSize), nil
	case "DATA":
		flag := uint8(0)
		if end {
			flag = h2.EndStream
		}
		return append(h2.AppendHeader(nil, len(texts(1)), h2.Data, flag, number(arg(0))), texts(1)...), nil
	case "PING":
		ack := len(args) > 0 && args[0] == "ACK"
		if ack {
			args = args[1:]
		}
		var data [8]byte
		copy(data[:], texts(0))
		return h2.AppendPing(nil, data, ack), nil
	case "RST_STREAM":
		return h2.AppendReset(nil, number(arg(0)), CodeOf(arg(1))), nil
	case "GOAWAY":
		return h2.AppendGoAway(nil, number(arg(0)), CodeOf(arg(1)), string(texts(2))), nil
	case "WINDOW_UPDATE":
		return h2.AppendWindowUpdate(nil, number(arg(0)), int(number(arg(1)))), nil
	case "PRIORITY":
		p = h2.AppendHeader(nil, 5, h2.PriorityFrame, 0, number(arg(0)))
		return append(binary.BigEndian.AppendUint32(p, number(arg(1))), 16), nil
	case "PRIORITY_UPDATE":
		return h2.AppendPriorityUpdate(nil, number(arg(0)), string(texts(1))), nil
	}
	return nil, ErrNoFrame
}

func number(word string) uint32 {
	n, err := strconv.ParseUint(word, 0, 32)
	if err != nil {
		panic(err)
	}
	return uint32(n)
}

var frameTypes = map[string]h2.Type{"DATA": h2.Data, "HEADERS": h2.Headers, "PRIORITY": h2.PriorityFrame,
	"RST_STREAM": h2.ResetStream, "SETTINGS": h2.Settings, "PUSH_PROMISE": h2.PushPromise, "PING": h2.Ping,
	"GOAWAY": h2.GoAway, "WINDOW_UPDATE": h2.WindowUpdate, "CONTINUATION": h2.Continuation,
	"PRIORITY_UPDATE": h2.PriorityUpdate}

func frameType(word string) h2.Type {
	if t, ok := frameTypes[word]; ok {
		return t
	}
	return h2.Type(number(word))
}

var frameFlags = map[string]uint8{"END_STREAM": h2.EndStream, "ACK": h2.Ack, "END_HEADERS": h2.EndHeaders,
	"PADDED": h2.Padded, "WEIGHT": h2.HasWeight}

func flags(word string) (all uint8) {
	for name := range strings.SplitSeq(word, "|") {
		flag, ok := frameFlags[name]
		if !ok {
			flag = uint8(number(name))
		}
		all |= flag
	}
	return all
}

var settingNames = map[string]h2.SettingID{"HEADER_TABLE_SIZE": h2.HeaderTableSize, "ENABLE_PUSH": h2.EnablePush,
	"MAX_CONCURRENT_STREAMS": h2.MaxConcurrentStreams, "INITIAL_WINDOW_SIZE": h2.InitialWindowSize,
	"MAX_FRAME_SIZE": h2.MaxFrameSizeSetting, "MAX_HEADER_LIST_SIZE": h2.MaxHeaderListSize,
	"ENABLE_CONNECT_PROTOCOL": h2.EnableConnectProtocol, "NO_RFC7540_PRIORITIES": h2.NoRFC7540Priorities}

func settingName(id h2.SettingID) string {
	for name, known := range settingNames {
		if known == id {
			return name
		}
	}
	return fmt.Sprint(uint16(id))
}

// FrameSettings are those of words NAME=N.
func FrameSettings(words []string) (all []h2.Setting, err error) {
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		n, err := strconv.ParseUint(value, 0, 32)
		id, known := settingNames[name]
		if other, err := strconv.ParseUint(name, 0, 16); err == nil {
			id, known = h2.SettingID(other), true
		}
		if err != nil || !known {
			return nil, fmt.Errorf("no setting %q", word)
		}
		all = append(all, h2.Setting{ID: id, Value: uint32(n)})
	}
	return all, nil
}

// CodeOf is the error code of a name. It panics if there is none.
func CodeOf(name string) h2.Code {
	for code := range h2.HTTP11Required + 1 {
		if code.String() == name {
			return code
		}
	}
	return h2.Code(number(name))
}

// Pairs are the fields of words name=value, as h2.AppendPair puts them.
func Pairs(words []string) (p []byte) {
	for _, word := range named(words) {
		name, value := pairOf(word)
		p = h2.AppendPair(p, name, value, false)
	}
	return p
}

// Block is a field block of words.
func Block(words []string) (p []byte) {
	for _, word := range words {
		switch {
		case strings.HasPrefix(word, "$"):
			p = append(p, part(word)...)
		case strings.HasPrefix(word, "+"):
			p = append(p, Text(word[1:])...)
		default:
			name, value := pairOf(word)
			p = hpack.AppendField(p, []byte(name), []byte(value), false)
		}
	}
	return p
}

func pairOf(word string) (name, value string) {
	name, value, found := strings.Cut(word, "=")
	if !found {
		panic(fmt.Sprintf("%q is no field", word))
	}
	return name, Text(value)
}

var (
	getFields = []string{":method=GET", ":scheme=http", ":authority=h", ":path=/"}
	okFields  = []string{":status=200"}
	partOfIt  = regexp.MustCompile(`^\$(get|ok)(?:\[(\d*):(\d*)\])?$`)
)

// named replaces $get and $ok by their fields.
func named(words []string) (all []string) {
	for _, word := range words {
		switch word {
		case "$get":
			all = append(all, getFields...)
		case "$ok":
			all = append(all, okFields...)
		default:
			all = append(all, word)
		}
	}
	return all
}

// part is the bytes of a word: those of Text, or of a block by its name.
func part(word string) []byte {
	m := partOfIt.FindStringSubmatch(word)
	if m == nil {
		return []byte(Text(word))
	}
	block := Block(named([]string{"$" + m[1]}))
	from, to := 0, len(block)
	if m[2] != "" {
		from = int(number(m[2]))
	}
	if m[3] != "" {
		to = int(number(m[3]))
	}
	return block[from:to]
}

// A FrameReader describes frames that come, in the words of Frame.
type FrameReader struct {
	in      []byte
	decoder *hpack.Decoder
}

// Add adds bytes that have come.
func (r *FrameReader) Add(p []byte) { r.in = append(r.in, p...) }

// Skip drops bytes that are no frame, and reports whether they are the next ones.
func (r *FrameReader) Skip(text string) bool {
	found := strings.HasPrefix(string(r.in), text)
	if found {
		r.in = r.in[len(text):]
	}
	return found
}

// Len is how many bytes have not been looked at.
func (r *FrameReader) Len() int { return len(r.in) }

// Next describes the next frame; "": it has not come.
func (r *FrameReader) Next() (text string, f h2.Frame, err error) {
	n, f, err := h2.ParseFrame(r.in, h2.MaxFrameSize)
	if n == 0 || err != nil {
		return "", f, err
	}
	r.in = r.in[n:]
	text, err = r.describe(&f)
	return text, f, err
}

func (r *FrameReader) describe(f *h2.Frame) (string, error) {
	end := ""
	if f.Has(h2.EndStream) {
		end = " END"
	}
	switch f.Type {
	case h2.Data:
		if len(f.Data) > 40 {
			return fmt.Sprintf("DATA %d %d bytes%s", f.Stream, len(f.Data), end), nil
		}
		return fmt.Sprintf("DATA %d %q%s", f.Stream, f.Data, end), nil
	case h2.Headers:
		if r.decoder == nil {
			r.decoder = new(hpack.Decoder)
			r.decoder.Reset()
		}
		fields, _, err := r.decoder.Decode(nil, f.Data, 1<<20)
		return strings.TrimSuffix(fmt.Sprintf("HEADERS %d %s", f.Stream, FieldWords(fields)), " ") + end, err
	case h2.Settings:
		if f.Has(h2.Ack) {
			return "SETTINGS ACK", nil
		}
		text := "SETTINGS"
		for s := range f.Settings {
			text += fmt.Sprintf(" %s=%d", settingName(s.ID), s.Value)
		}
		return text, nil
	case h2.Ping:
		if f.Has(h2.Ack) {
			return "PING ACK " + strings.TrimRight(string(f.Data), "\x00"), nil
		}
		return "PING", nil
	case h2.GoAway:
		return fmt.Sprintf("GOAWAY %d %v", f.Last, h2.Code(f.Value)), nil
	case h2.ResetStream:
		return fmt.Sprintf("RST_STREAM %d %v", f.Stream, h2.Code(f.Value)), nil
	case h2.WindowUpdate:
		return fmt.Sprintf("WINDOW_UPDATE %d %d", f.Stream, f.Value), nil
	}
	for name, t := range frameTypes {
		if t == f.Type {
			return fmt.Sprintf("%s %d", name, f.Stream), nil
		}
	}
	return fmt.Sprintf("FRAME %d", f.Type), nil
}

// FieldWords are fields in the words of Frame.
func FieldWords(fields []hpack.Field) string {
	var all []string
	for _, f := range fields {
		value := f.Value
		if len(value) > 200 {
			value = Quote(value)
		}
		all = append(all, f.Name+"="+value)
	}
	return strings.Join(all, " ")
}

// Repeat does the commands of words several times. The first word says how often: 3, or 2..4 for
// the third to the fifth time. A ";" stands between commands. $id is the stream of each time: 1, 3,
// 5 and so on. $id+40 is the stream 40 above it.
func Repeat(words []string, do func(verb string, args []string) ([]string, error)) (lines []string, err error) {
	first, last, found := strings.Cut(words[0], "..")
	from, err := strconv.Atoi(first)
	if err != nil {
		return nil, err
	}
	to := from - 1
	if !found {
		from = 0
	} else if to, err = strconv.Atoi(last); err != nil {
		return nil, err
	}
	for i := from; i <= to; i++ {
		for rest := words[1:]; len(rest) > 0; {
			one := rest
			if n := slices.Index(rest, ";"); n >= 0 {
				one, rest = rest[:n], rest[n+1:]
			} else {
				rest = nil
			}
			var args []string
			for _, word := range one[1:] {
				if before, by, of := strings.Cut(word, "$id"); of {
					n, _ := strconv.Atoi(by)
					word = fmt.Sprint(before, 2*i+1+n)
				}
				args = append(args, word)
			}
			more, err := do(one[0], args)
			if lines = append(lines, more...); err != nil {
				return lines, err
			}
		}
	}
	return lines, nil
}
