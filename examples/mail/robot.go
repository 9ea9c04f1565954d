package main

import (
	"context"
	"log/slog"
	"time"
)

var letters = []struct{ from, subject, text string }{
	{"bob@example.org", "Lunch?", "The place at the corner has soup today. Half past twelve?"},
	{"build@example.org", "main is green", "All tests passed. The slowest took as long as yesterday."},
	{"carol@example.org", "Photos of the weekend",
		"I have put them where the last ones are. Yours is the one with the dog."},
	{"library@example.org", "Your book is here", "It waits for you at the desk until Friday."},
	{"dave@example.org", "Re: numbers", "I get the same ones now. It was the cache, as you said."},
}

// write delivers mail to the user now and then, until ctx ends.
func write(ctx context.Context, s *store, user string, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		letter := letters[n%len(letters)]
		if err := s.deliver(user, letter.from, letter.subject, letter.text); err != nil {
			slog.Warn("mail: the robot cannot deliver", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
