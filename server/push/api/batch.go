package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/server/push/internal/strict"
)

// This file serves several commands in one request. POST /api/batch takes a JSON object; the older
// POST /api takes one command to a line, as gocent v3 sends them. Each command gets its own reply.
// Limits.Commands bounds their number, Limits.Batch the bytes of the request. Once the replies
// exceed Limits.Batch, further commands are refused.

// batchParallel is how many commands of a parallel batch run at the same time.
const batchParallel = 16

// A command is one call in such a request.
type command struct {
	id      uint32
	method  *method
	body    []byte
	asBytes bool  // see request
	err     error // if set, the command is not run and this is its reply
}

type batchRequest struct {
	Commands commandList `json:"commands"`
	Parallel bool        `json:"parallel"`
}

// A commandList reads commands until there are more than most. Millions of empty ones fit into the
// bytes of a request, and each takes memory.
type commandList struct {
	most int
	list []json.RawMessage
	full bool // there were more
}

// UnmarshalJSON reads an array, or null.
func (c *commandList) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		if t == nil {
			return err
		}
		return errors.New("commands is not an array")
	}
	for d.More() {
		if c.full = len(c.list) == c.most; c.full {
			return nil
		}
		var one json.RawMessage
		if err := d.Decode(&one); err != nil {
			return err
		}
		c.list = append(c.list, one)
	}
	return nil
}

// serveBatch answers POST /api/batch.
func (s *Door) serveBatch(w http.ResponseWriter, r *http.Request) {
	body, ok := s.readAPI(w, r, s.hub.Limits().Batch)
	if !ok {
		return
	}
	replies, err := s.batch(r.Context(), body, false)
	if err != nil {
		s.answerError(w, r, err)
		return
	}
	answer.WriteJSON(w, http.StatusOK, replies)
}

// batch runs the commands of {"commands": [{METHOD: REQUEST}, …], "parallel": BOOL}. The answer is
// {"replies": [REPLY, …]}, where REPLY is {METHOD: RESULT} or {"error": {"code", "message"}}. For
// asBytes see request. The error is an *Failure with a status.
func (s *Door) batch(ctx context.Context, body []byte, asBytes bool) ([]byte, error) {
	given := batchRequest{Commands: commandList{most: s.hub.Limits().Commands}}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(&given)
	if err == nil && d.More() {
		err = errors.New("more data follows the object")
	}
	if err == nil && given.Commands.full {
		return nil, s.tooManyCommands()
	}
	commands := make([]command, len(given.Commands.list))
	for i, text := range given.Commands.list {
		var one map[string]json.RawMessage
		err = errors.Join(err, json.Unmarshal(text, &one))
		commands[i] = newCommand(one)
		commands[i].asBytes = asBytes
	}
	if err != nil {
		return nil, &answer.Failure{Status: http.StatusBadRequest, Code: answer.ErrBadRequest.Code,
			Message: "the body is not the JSON object {\"commands\": […], \"parallel\": false}: " + hub.OneLine(err)}
	}
	replies := s.runAll(ctx, commands, given.Parallel, appendBatchReply)
	return append(append([]byte(`{"replies":[`), bytes.Join(replies, []byte(","))...), "]}"...), nil
}

// newCommand reads {METHOD: REQUEST}.
func newCommand(given map[string]json.RawMessage) command {
	maps.DeleteFunc(given, func(_ string, value json.RawMessage) bool { return string(value) == "null" })
	names := slices.Sorted(maps.Keys(given))
	switch {
	case given == nil:
		return command{err: badRequest("a command is null")}
	case len(names) == 0:
		return command{err: &answer.Failure{Code: answer.ErrMethodNotFound.Code, Message: "a command has no method"}}
	case len(names) > 1:
		return command{err: badRequest("a command has one method; this one has " + strings.Join(names, ", "))}
	}
	m, err := methodNamed(names[0], given[names[0]])
	return command{method: m, body: given[names[0]], err: err}
}

// serveLines answers POST /api: one command {"id", "method", "params"} after the other. The answer
// has one line for each: {"id", "result"} or {"id", "error"}.
func (s *Door) serveLines(w http.ResponseWriter, r *http.Request) {
	body, ok := s.readAPI(w, r, s.hub.Limits().Batch)
	if !ok {
		return
	}
	var commands []command
	for d := json.NewDecoder(bytes.NewReader(body)); ; {
		var text json.RawMessage
		var given struct {
			ID     uint32          `json:"id"`
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		}
		err := d.Decode(&text)
		if err == io.EOF && len(commands) > 0 {
			break
		}
		if err == nil {
			err = strict.Unmarshal(text, &given)
		}
		if err != nil {
			message := "the body is not JSON objects {\"method\": …, \"params\": {…}}: " + err.Error()
			answer.WriteError(w, http.StatusBadRequest, answer.ErrBadRequest.Code, message)
			return
		}
		if len(commands) == s.hub.Limits().Commands {
			s.answerError(w, r, s.tooManyCommands())
			return
		}
		if given.Params == nil {
			given.Params = json.RawMessage("{}")
		}
		m, err := methodNamed(strings.ToLower(given.Method), given.Params)
		commands = append(commands, command{id: given.ID, method: m, body: given.Params, err: err})
	}
	replies := s.runAll(r.Context(), commands, false, appendLineReply)
	answer.WriteJSON(w, http.StatusOK, bytes.Join(replies, []byte("\n")))
}

func (s *Door) tooManyCommands() error {
	return &answer.Failure{Status: http.StatusRequestEntityTooLarge, Code: answer.ErrLimitExceeded.Code,
		Message: fmt.Sprintf("more than %d commands in one request: send several", s.hub.Limits().Commands)}
}

// runAll runs the commands, in order or in parallel, and returns the reply of each as encode
// encodes it.
func (s *Door) runAll(ctx context.Context, commands []command, parallel bool,
	encode func(command, []byte) []byte) [][]byte {
	replies := make([][]byte, len(commands))
	var size atomic.Int64
	run := func(i int) {
		c := commands[i]
		var result []byte
		if before := size.Load(); c.err == nil && before > int64(s.hub.Limits().Batch) {
			message := fmt.Sprintf("the replies before it are %d bytes: send it in another request", before)
			c.err = &answer.Failure{Code: answer.ErrLimitExceeded.Code, Message: message}
		}
		if c.err == nil {
			result, c.err = s.call(ctx, c.method, c.body, c.asBytes)
		}
		replies[i] = encode(c, result)
		size.Add(int64(len(replies[i])))
	}
	if !parallel {
		for i := range commands {
			run(i)
		}
		return replies
	}
	var all sync.WaitGroup
	var next atomic.Int64
	for range min(batchParallel, len(commands)) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(commands); i = int(next.Add(1)) - 1 {
				run(i)
			}
		})
	}
	all.Wait()
	return replies
}

func appendBatchReply(c command, result []byte) []byte {
	if c.err != nil {
		return c.appendError(nil)
	}
	return append(append(append([]byte(`{"`), c.method.name...), `":`...), append(result, '}')...)
}

func appendLineReply(c command, result []byte) []byte {
	reply := []byte{'{'}
	if c.id != 0 {
		reply = append(strconv.AppendUint(append(reply, `"id":`...), uint64(c.id), 10), ',')
	}
	if c.err != nil {
		return append(reply, c.appendError(nil)[1:]...)
	}
	return append(append(append(reply, `"result":`...), result...), '}')
}

// appendError appends the object {"error": {…}}.
func (c command) appendError(dst []byte) []byte {
	e := c.err.(*answer.Failure)
	return answer.AppendError(dst, e.Code, e.Message)
}
