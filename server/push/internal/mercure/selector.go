package mercure

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// MaxTopic bounds a topic and a selector, in bytes.
const MaxTopic = 1024

// A Selector selects topics: "*" selects all, a URI template (RFC 6570) its expansions, and any
// text the equal topic.
type Selector struct {
	text     string
	template *template // nil for a text
}

// errTopic says what a topic or selector must be. Topics become fields of events and of logs.
var errTopic = errors.New("it is empty, not UTF-8, or has control characters")

// CheckTopic returns an error for a text that is no topic.
func CheckTopic(text string) error {
	if len(text) > MaxTopic {
		return fmt.Errorf("a topic of %d bytes: at most %d are allowed", len(text), MaxTopic)
	}
	if text == "" || !plain(text) {
		return fmt.Errorf("topic %q: %w", text, errTopic)
	}
	return nil
}

// plain reports whether text is UTF-8 without control characters.
func plain(text string) bool {
	for _, r := range text {
		if r < 0x20 || r == 0x7f {
			return false
		}
	}
	return utf8.ValidString(text)
}

// Compile returns the selector of that text. A text that is no valid URI template selects the topic
// that is equal to it. Compile fails if the text is no topic, or a template that costs too much.
func Compile(text string) (Selector, error) {
	if err := CheckTopic(text); err != nil {
		return Selector{}, err
	}
	t, err := parseTemplate(text)
	return Selector{text, t}, err
}

// String returns the text of the selector.
func (s Selector) String() string { return s.text }

// Matches reports whether the selector selects topic.
func (s Selector) Matches(topic string) bool {
	return s.text == "*" || s.text == topic || s.template != nil && s.template.matches(topic)
}
