package push

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
)

// bodyFactor is how many times longer than its data the body of a publish may be. It leaves room for
// indentation.
const bodyFactor = 16

// readAPI returns the body of an authorized request, or answers with an error.
func (s *apiDoor) readAPI(w http.ResponseWriter, r *http.Request, limit int) (body []byte, ok bool) {
	if !AllowMethod(w, r, http.MethodPost) {
		return nil, false
	}
	if !s.MayCallNow(w, r) {
		return nil, false
	}
	if !s.hasKey(r) {
		s.RefusedRequest(RefusedKey, r)
		WriteError(w, http.StatusUnauthorized, ErrUnauthorized.Code,
			"the key is missing or wrong: send it in the header X-API-Key, or as Authorization: apikey KEY")
		return nil, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(limit)))
	if err != nil {
		RefuseBody(w, err)
		return nil, false
	}
	return body, true
}

// plainPublish parses the form that nearly all publishers send: {"channel":"…","data":…}. It allows
// one space after separators, and a name in ASCII without escapes. Without it, by encoding/json
// alone, a publish to one subscriber takes 1.3 times the CPU. A body that it rejects may still be a
// valid request.
func plainPublish(body []byte) (r apiRequest, ok bool) {
	body, begins := bytes.CutPrefix(body, []byte(`{"channel":`))
	name, begins2 := bytes.CutPrefix(bytes.TrimPrefix(body, []byte(" ")), []byte(`"`))
	end := bytes.IndexByte(name, '"')
	if !begins || !begins2 || end < 0 {
		return r, false
	}
	name, body = name[:end], name[end+1:]
	for _, c := range name {
		if c < 0x20 || c > 0x7e || c == '\\' {
			return r, false
		}
	}
	body, comma := bytes.CutPrefix(body, []byte(","))
	body, member := bytes.CutPrefix(bytes.TrimPrefix(body, []byte(" ")), []byte(`"data":`))
	data, closed := bytes.CutSuffix(body, []byte("}"))
	data = bytes.Trim(data, " \t\r\n")
	if !comma || !member || !closed || !json.Valid(data) {
		return r, false
	}
	return apiRequest{Channel: string(name), Data: data}, true
}
