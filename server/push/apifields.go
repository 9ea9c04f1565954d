package push

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// This file reads requests to the API. A field that the server does not act on is refused by name:
// a client that gets "ok" relies on every field it sent.

// unservedFields are the fields of Centrifugo's API that this server lacks, each with what to do
// instead.
var unservedFields = map[string]string{
	"label_filter": "name the user or the client",
	"all_users":    "name the user or the client",
	"expression":   "name the user",
	"disconnect.reconnect": "clients stay away after the codes 3500 to 3999 and 4500 to 4999, and come back after " +
		"all others",
}

// nested lists the fields of the fields that are objects.
var nested = map[string][]string{
	"since": {"epoch", "offset"}, "recover_since": {"epoch", "offset"}, "disconnect": {"code", "reason"},
	"override": {"force_positioning", "force_push_join_leave", "force_recovery", "join_leave",
		"presence"},
	"override.force_positioning": {"value"}, "override.force_push_join_leave": {"value"},
	"override.force_recovery": {"value"}, "override.join_leave": {"value"}, "override.presence": {"value"},
}

// read returns the request in body, or an *Failure that says what is wrong with it.
func (m *apiMethod) read(body []byte) (r apiRequest, err error) {
	if m.name == "publish" {
		if r, plain := plainPublish(body); plain {
			return r, nil
		}
	}
	var given map[string]json.RawMessage
	err = json.Unmarshal(body, &given)
	if err == nil && given == nil {
		err = errNotAnObject
	}
	if err == nil {
		if wrong := m.refuse("", m.fields, given); wrong != nil {
			return r, wrong
		}
		err = json.Unmarshal(body, &r)
	}
	if wrong := base64.CorruptInputError(0); errors.As(err, &wrong) {
		return r, badRequest(m.name + " has a field that is not base64: " + err.Error())
	}
	if err != nil {
		message := "the body is not a JSON object that " + m.name + " accepts: " + err.Error()
		return r, &Failure{http.StatusBadRequest, ErrBadRequest.Code, message}
	}
	return r, nil
}

var errNotAnObject = errors.New("it is null")

// refuse returns an error for the first given field that is not among the known ones. A field with
// an empty value passes, because generated clients send all fields. The path of the enclosing
// object ends with a dot or is empty.
func (m *apiMethod) refuse(path string, known []string, given map[string]json.RawMessage) error {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value := given[name]
		lower := strings.ToLower(name) // as encoding/json compares
		switch {
		case slices.Contains(known, lower):
			var inner map[string]json.RawMessage
			if nested[path+lower] == nil || json.Unmarshal(value, &inner) != nil {
				continue // the type is checked when the request is read
			}
			if err := m.refuse(path+lower+".", nested[path+lower], inner); err != nil {
				return err
			}
		case isEmpty(value):
		case unservedFields[path+lower] != "":
			instead := strings.ReplaceAll(unservedFields[path+lower], "`", "")
			return badRequest(fmt.Sprintf("field %q of %s is not served: %s", path+lower, m.name, instead))
		default:
			return badRequest(m.name + " has no field \"" + path + name + "\": " + takes(path, known))
		}
	}
	return nil
}

func takes(path string, known []string) string {
	what := "it takes "
	if path != "" {
		what = strings.TrimSuffix(path, ".") + " takes "
	}
	if len(known) == 0 {
		return what + "none"
	}
	return what + strings.Join(known, ", ")
}

// isEmpty reports whether the JSON value is the zero value that a client sends for an unset field.
func isEmpty(value json.RawMessage) bool {
	switch string(value) {
	case "null", "false", "0", `""`, "{}", "[]":
		return true
	}
	return false
}
