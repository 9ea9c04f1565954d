package servertest

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// An APIMethod is a method of the API with the fields of its request.
type APIMethod struct {
	Name   string
	Fields []string
}

// APIMethods returns those that the API's own description has, without batch.
func APIMethods(ts *Server) (list []APIMethod) {
	ts.T.Helper()
	var document struct {
		Paths map[string]struct {
			Post struct {
				RequestBody struct {
					Content map[string]struct {
						Schema struct{ Properties map[string]any }
					}
				}
			}
		}
	}
	if err := json.Unmarshal(ts.Do("GET", "/api/openapi.json", "").Body.Bytes(), &document); err != nil {
		ts.T.Fatal(err)
	}
	for path, item := range document.Paths {
		if name := strings.TrimPrefix(path, "/api/"); name != "batch" {
			properties := item.Post.RequestBody.Content["application/json"].Schema.Properties
			list = append(list, APIMethod{name, slices.Sorted(maps.Keys(properties))})
		}
	}
	if len(list) != 13 {
		ts.T.Fatalf("the API describes %d methods", len(list))
	}
	return list
}
