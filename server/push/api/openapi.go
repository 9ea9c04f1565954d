package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/myriad-go/myriad/server/push/answer"
)

// This file describes the HTTP API as an OpenAPI 3.1 document, from the table in api.go.

type object = map[string]any

// serveOpenAPI answers with the document. It is the same for everyone, and needs no key.
func (s *Door) serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	answer.WriteJSON(w, http.StatusOK, openAPI(s.hub.Version()))
}

// openAPI returns the document.
func openAPI(version string) []byte {
	paths := object{"/api/batch": operationOf("batch", object{
		"commands": object{"type": "array", "items": object{"type": "object"},
			"description": "objects with one method and its request each"},
		"parallel": object{"type": "boolean"},
	}, object{"replies": object{"type": "array", "items": object{"type": "object"}}})}
	for _, m := range methods {
		fields := object{}
		for _, name := range m.fields {
			fields[name] = requestFields[name]
		}
		result := object{"type": "object", "description": m.result}
		paths["/api/"+m.name] = operationOf(m.name, fields, object{"result": result, "error": reference("Error")})
	}
	body, err := json.Marshal(object{
		"openapi": "3.1.0", "info": object{"title": "The HTTP API of Myriad", "version": version}, "paths": paths,
		"security": []any{object{"apiKey": []any{}}},
		"components": object{
			"securitySchemes": object{"apiKey": object{"type": "apiKey", "in": "header", "name": "X-API-Key"}},
			"schemas": object{"Error": object{"type": "object", "required": []string{"code", "message"},
				"properties": object{"code": object{"type": "integer"}, "message": object{"type": "string"}}}},
		},
	})
	if err != nil {
		panic("push: the OpenAPI document is always JSON: " + err.Error())
	}
	return body
}

func reference(schema string) object { return object{"$ref": "#/components/schemas/" + schema} }

// operationOf returns the path item of a method.
func operationOf(name string, request, response object) object {
	content := func(properties object) object {
		return object{"application/json": object{"schema": object{"type": "object", "properties": properties}}}
	}
	failed := object{"description": "the request did not reach the API", "content": content(object{
		"error": reference("Error")})}
	return object{"post": object{
		"operationId": name, "requestBody": object{"required": true, "content": content(request)},
		"responses": object{"200": object{"description": "a result or an error", "content": content(response)},
			"default": failed},
	}}
}

// requestFields are the schemas of the fields of request, by their names.
var requestFields = func() object {
	fields := object{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[request]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); len(f.Index) == 1 {
			fields[name] = schemaOf(f.Type)
		}
	}
	return fields
}()

// schemaOf returns the schema of a type, as encoding/json reads it.
func schemaOf(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		return object{} // anything
	case t == reflect.TypeFor[[]byte]():
		return object{"type": "string", "contentEncoding": "base64"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Struct:
		properties := object{}
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				name = strings.ToLower(f.Name) // as encoding/json compares
			}
			properties[name] = schemaOf(f.Type)
		}
		return object{"type": "object", "properties": properties}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	}
	if !slices.Contains([]reflect.Kind{reflect.Int, reflect.Int64, reflect.Uint32, reflect.Uint64}, t.Kind()) {
		panic("push: the OpenAPI document has no schema for " + t.String())
	}
	return object{"type": "integer"}
}
