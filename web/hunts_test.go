package web

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"testing"
)

// This file tries what users of other servers have reported (docs/HUNTS.md), where features meet.

// SetKeepAlivesEnabled(false) also ends a connection whose answer has promised to keep it: the call
// came while the rest of the request's body, or of the answer, was still to come.
func TestKeepAlivesSwitchedOffBesideTheRest(t *testing.T) {
	streams := make(chan *Stream, 1)
	for name, tt := range map[string]struct {
		handler       http.HandlerFunc
		request, rest string
		goOn          func()
	}{
		"a body follows": {func(w http.ResponseWriter, r *http.Request) {
			c := http.NewResponseController(w)
			c.EnableFullDuplex()
			w.Header().Set("Content-Length", "2")
			io.WriteString(w, "hi")
			c.Flush()
		}, post + "Content-Length: 10\r\n\r\nab", "cdefghij", func() {}},
		"a Stream follows": {func(w http.ResponseWriter, r *http.Request) {
			s, err := Detached(w)
			if err != nil {
				t.Error(err)
			}
			s.Write([]byte("hi"))
			streams <- s
		}, get + end, "", func() { (<-streams).Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, &Server{Handler: tt.handler})
			c := dial(t, f)
			in := bufio.NewReader(c)
			io.WriteString(c, tt.request)
			resp, err := http.ReadResponse(in, nil)
			if err != nil || resp.Close {
				t.Fatalf("%v, %v", resp, err)
			}
			if _, err := io.ReadFull(resp.Body, make([]byte, 2)); err != nil {
				t.Fatal(err)
			}
			f.SetKeepAlivesEnabled(false)
			io.WriteString(c, tt.rest+get+end)
			tt.goOn()
			if p, err := io.ReadAll(resp.Body); len(p) > 0 || err != nil {
				t.Errorf("%q, %v", p, err)
			}
			if b, err := in.ReadByte(); !errors.Is(err, io.EOF) {
				t.Errorf("the connection goes on: %q, %v", b, err)
			}
		})
	}
}
