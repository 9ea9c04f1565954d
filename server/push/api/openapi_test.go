package api

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push"
)

// The document has a path for each method of the table, with its fields, and every path is served.
func TestOpenAPIDescribesTheTable(t *testing.T) {
	ts := newServer(t, push.Config{APIKey: "k"})
	w := ts.do("GET", "/api/openapi.json", "")
	var document struct {
		OpenAPI string
		Info    struct{ Title, Version string }
		Paths   map[string]map[string]struct {
			OperationID string
			RequestBody struct {
				Content map[string]struct {
					Schema struct{ Properties map[string]json.RawMessage }
				}
			}
			Responses map[string]struct{ Description string }
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil || w.Code != 200 {
		t.Fatalf("%d, %v", w.Code, err)
	}
	if document.OpenAPI != "3.1.0" || document.Info.Title == "" || document.Info.Version == "" {
		t.Errorf("the document begins with %+v", document.Info)
	}
	want := map[string][]string{"batch": {"commands", "parallel"}}
	for _, m := range methods {
		want[m.name] = m.fields
	}
	if len(document.Paths) != len(want) {
		t.Errorf("%d paths, want %d", len(document.Paths), len(want))
	}
	for name, fields := range want {
		item := document.Paths["/api/"+name]
		post, ok := item["post"]
		if !ok || len(item) != 1 || post.OperationID != name {
			t.Errorf("%s: %+v", name, item)
			continue
		}
		given := slices.Sorted(maps.Keys(post.RequestBody.Content["application/json"].Schema.Properties))
		if !slices.Equal(given, fields) {
			t.Errorf("%s takes %v, want %v", name, given, fields)
		}
		if post.Responses["200"].Description == "" || post.Responses["default"].Description == "" {
			t.Errorf("%s: responses %+v", name, post.Responses)
		}
		if w := ts.do("POST", "/api/"+name, `{}`, "X-API-Key", "k"); w.Code != 200 && name != "batch" {
			t.Errorf("%s is not served: %d", name, w.Code)
		}
	}
}

// Every schema of the document is well formed, and every reference leads somewhere.
func TestOpenAPISchemas(t *testing.T) {
	var document map[string]any
	if err := json.Unmarshal(openAPI("1"), &document); err != nil {
		t.Fatal(err)
	}
	schemas := document["components"].(map[string]any)["schemas"].(map[string]any)
	seen := map[string]int{}
	var check func(path string, value any)
	checkSchema := func(path string, schema map[string]any) {
		if ref, ok := schema["$ref"].(string); ok {
			seen["$ref"]++
			if schemas[strings.TrimPrefix(ref, "#/components/schemas/")] == nil {
				t.Errorf("%s: %s leads nowhere", path, ref)
			}
			return
		}
		kind, _ := schema["type"].(string)
		seen[kind]++
		if !slices.Contains([]string{"", "object", "array", "string", "integer", "boolean"}, kind) {
			t.Errorf("%s has the type %q", path, kind)
		}
		if (kind == "array") != (schema["items"] != nil) {
			t.Errorf("%s: an array and items belong together", path)
		}
		properties, _ := schema["properties"].(map[string]any)
		for name, property := range properties {
			check(path+"."+name, property)
		}
		for _, name := range []string{"items", "additionalProperties"} {
			if schema[name] != nil {
				check(path+"."+name, schema[name])
			}
		}
	}
	check = func(path string, value any) {
		schema, ok := value.(map[string]any)
		if !ok {
			t.Errorf("%s is no schema", path)
			return
		}
		checkSchema(path, schema)
	}
	var find func(path string, value any)
	find = func(path string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for name, inner := range value {
				if name == "schema" {
					check(path, inner)
					continue
				}
				find(path+"/"+name, inner)
			}
		case []any:
			for _, inner := range value {
				find(path, inner)
			}
		}
	}
	find("", document["paths"])
	for _, kind := range []string{"$ref", "", "object", "array", "string", "integer", "boolean"} {
		if seen[kind] == 0 {
			t.Errorf("no schema has the type %q: the test looks at nothing", kind)
		}
	}
}
