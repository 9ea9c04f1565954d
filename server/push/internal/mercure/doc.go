// Package mercure holds the pure parts of a Mercure hub (draft-dunglas-mercure): selectors of
// topics, the choice of subscribers for an update, and how an update looks as an event.
//
//	var r mercure.Router[int]
//	books, _ := mercure.Compile("https://example.com/books/{id}")
//	r.Join(1, mercure.Interest{Topics: []mercure.Selector{books}})
//	r.Select([]string{"https://example.com/books/7"}, false, nil) // [1]
//
// It knows no connection, no clock and no token.
package mercure
