package h2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"golang.org/x/net/http2"
)

func raw(t Type, flags uint8, stream uint32, payload string) []byte {
	return append(AppendHeader(nil, len(payload), t, flags, stream), payload...)
}

func TestSettingCheck(t *testing.T) {
	for _, tt := range []struct {
		s    Setting
		code Code
	}{
		{Setting{EnablePush, 2}, ProtocolError}, {Setting{EnablePush, 1}, NoError},
		{Setting{InitialWindowSize, 1 << 31}, FlowControlError}, {Setting{InitialWindowSize, 1<<31 - 1}, NoError},
		{Setting{MaxFrameSizeSetting, 1<<14 - 1}, ProtocolError},
		{Setting{MaxFrameSizeSetting, 1 << 24}, ProtocolError},
		{Setting{MaxFrameSizeSetting, 1<<24 - 1}, NoError}, {Setting{EnableConnectProtocol, 2}, ProtocolError},
		{Setting{NoRFC7540Priorities, 2}, ProtocolError}, {Setting{99, 1 << 31}, NoError},
	} {
		e, _ := errors.AsType[*Error](tt.s.Check())
		if (e == nil) != (tt.code == NoError) || e != nil && (e.Code != tt.code || e.Stream != 0) {
			t.Errorf("%v: %v, want %v", tt.s, e, tt.code)
		}
	}
}

// What we append is what x/net's Framer reads.
func TestAppend(t *testing.T) {
	var p []byte
	p = AppendSettings(p, Setting{InitialWindowSize, 7}, Setting{MaxConcurrentStreams, 1 << 31})
	p = AppendSettingsAck(p)
	p = AppendPing(p, [8]byte{1, 2, 3}, true)
	p = AppendGoAway(p, 1<<31-1, EnhanceYourCalm, "why")
	p = AppendReset(p, 5, Cancel)
	p = AppendWindowUpdate(p, 3, 1<<31-1)
	p = AppendHeaders(p, 7, bytes.Repeat([]byte("h"), 40000), true, 16384)
	p = AppendPriorityUpdate(p, 9, "u=2")
	var want bytes.Buffer
	w := http2.NewFramer(&want, nil)
	w.WriteSettings(http2.Setting{ID: 4, Val: 7}, http2.Setting{ID: 3, Val: 1 << 31})
	w.WriteSettingsAck()
	w.WritePing(true, [8]byte{1, 2, 3})
	w.WriteGoAway(1<<31-1, http2.ErrCodeEnhanceYourCalm, []byte("why"))
	w.WriteRSTStream(5, http2.ErrCodeCancel)
	w.WriteWindowUpdate(3, 1<<31-1)
	w.WriteHeaders(http2.HeadersFrameParam{StreamID: 7, EndStream: true,
		BlockFragment: bytes.Repeat([]byte("h"), 16384)})
	w.WriteContinuation(7, false, bytes.Repeat([]byte("h"), 16384))
	w.WriteContinuation(7, true, bytes.Repeat([]byte("h"), 40000-2*16384))
	w.WriteRawFrame(16, 0, 0, []byte("\x00\x00\x00\x09u=2"))
	if !bytes.Equal(p, want.Bytes()) {
		t.Errorf("got  %.200x\nwant %.200x", p, want.Bytes())
	}
}

func TestPairs(t *testing.T) {
	p := AppendPair(AppendPair(nil, ":status", "200", false), "set-cookie", "secret", true)
	if n := ListSize(p); n != 7+3+32+10+6+32 || ListSize(nil) != 0 {
		t.Errorf("the size of two fields is %d", n)
	}
	for limit := range int64(100) {
		if got := ListExceeds(p, limit); got != (limit < 90) {
			t.Errorf("the list exceeds %d: %v", limit, got)
		}
	}
	var got []string
	for f := range Pairs(p) {
		got = append(got, fmt.Sprintf("%s %s %v", f.Name, f.Value, f.Sensitive))
	}
	if want := []string{":status 200 false", "set-cookie secret true"}; !slices.Equal(got, want) {
		t.Errorf("fields %q, want %q", got, want)
	}
	for range Pairs(p) {
		break
	}
}

// ParseFrame and x/net's Framer agree on what is a frame, where it ends, whether an error is the
// connection's, and what is in it. Any split of the input gives the same.
func FuzzParseFrame(f *testing.F) {
	for _, p := range [][]byte{
		raw(Data, EndStream, 1, "abc"), raw(Data, Padded, 1, "\x01ab"),
		raw(PriorityFrame, 0, 3, "\x80\x00\x00\x01\x10"),
		raw(Headers, EndHeaders|HasWeight|Padded, 3, "\x01\x00\x00\x00\x01\x10abc"),
		raw(ResetStream, 0, 3, "\x00\x00\x00\x08"), AppendSettings(nil, Setting{InitialWindowSize, 9}),
		AppendSettingsAck(nil), AppendPing(nil, [8]byte{}, false), AppendGoAway(nil, 7, NoError, "x"),
		AppendWindowUpdate(nil, 1, 5), raw(Continuation, EndHeaders, 1, "abc"), raw(99, 255, 1, "abc"),
		raw(PriorityUpdate, 0, 0, "\x00\x00\x00\x01u=1"),
	} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		n, frame, err := ParseFrame(p, MinFrameSize)
		for i := range len(p) {
			k, _, early := ParseFrame(p[:i:i], MinFrameSize)
			if k != 0 && k != n || early != nil && (err == nil || early.Error() != err.Error()) {
				t.Fatalf("after %d bytes: %d, %v; after all: %d, %v", i, k, early, n, err)
			}
			if early != nil && k == 0 {
				return
			}
			if k == 0 && n > 0 && i >= n {
				t.Fatalf("not complete after %d of %d bytes", i, n)
			}
		}
		other := http2.NewFramer(io.Discard, bytes.NewReader(p))
		other.AllowIllegalReads = true // the order of frames is not ParseFrame's business
		theirs, otherErr := other.ReadFrame()
		compare(t, n, &frame, err, theirs, otherErr)
	})
}

func compare(t *testing.T, n int, f *Frame, err error, theirs http2.Frame, otherErr error) {
	if f.Type == PushPromise || f.Type == PriorityUpdate {
		return // not parsed here; not known there
	}
	if errors.Is(otherErr, io.EOF) || errors.Is(otherErr, io.ErrUnexpectedEOF) {
		if n != 0 && err == nil {
			t.Fatalf("a frame of %d bytes, where x/net has %v", n, otherErr)
		}
		return
	}
	for s := range f.Settings { // which the Framer checks
		if f.Type == Settings && s.ID == InitialWindowSize && err == nil {
			err = s.Check()
		}
	}
	e, _ := errors.AsType[*Error](err)
	if e != nil && (e.Reason == "a stream depends on itself" || f.Type == PriorityFrame && e.Stream != 0) {
		return // not checked there; of the connection there
	}
	if (err == nil) != (otherErr == nil) {
		t.Fatalf("%v, where x/net has %v", err, otherErr)
	}
	if err != nil {
		stream, isStream := errors.AsType[http2.StreamError](otherErr)
		scope := isStream == (e.Stream != 0) || f.Type == Headers || f.Type == Data
		if !scope || isStream && stream.StreamID != f.Stream {
			t.Fatalf("%v, where x/net has %v", err, otherErr)
		}
		return
	}
	h := theirs.Header()
	if Type(h.Type) != f.Type || h.StreamID != f.Stream || int(h.Length) != f.Length || uint8(h.Flags) != f.Flags {
		t.Fatalf("%+v, where x/net has %v", f, h)
	}
	ok := true
	switch theirs := theirs.(type) {
	case *http2.DataFrame:
		ok = bytes.Equal(theirs.Data(), f.Data)
	case *http2.HeadersFrame:
		ok = bytes.Equal(theirs.HeaderBlockFragment(), f.Data)
	case *http2.ContinuationFrame:
		ok = bytes.Equal(theirs.HeaderBlockFragment(), f.Data)
	case *http2.RSTStreamFrame:
		ok = uint32(theirs.ErrCode) == f.Value
	case *http2.WindowUpdateFrame:
		ok = theirs.Increment == f.Value
	case *http2.GoAwayFrame:
		ok = theirs.LastStreamID == f.Last && uint32(theirs.ErrCode) == f.Value &&
			bytes.Equal(theirs.DebugData(), f.Data)
	case *http2.PingFrame:
		ok = theirs.Data == f.Ping()
	case *http2.SettingsFrame:
		var all []Setting
		theirs.ForeachSetting(func(s http2.Setting) error {
			all = append(all, Setting{SettingID(s.ID), s.Val})
			return nil
		})
		ok = slices.Equal(all, slices.Collect(f.Settings))
	}
	if !ok {
		t.Fatalf("%+v, where x/net has %v", f, theirs)
	}
}
