package mercure

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// An Update is what a publisher sends to the hub.
type Update struct {
	Topics  []string // the canonical one first, then alternates
	Data    string
	Private bool
	ID      string // empty: the hub chooses
	Type    string // of the event
	Retry   string // milliseconds in decimal, or empty
}

// MaxTopics bounds the topics of one update.
const MaxTopics = 100

// maxField bounds the id and the type of an update, in bytes.
const maxField = 256

// fields are those of a publication's form. Any other would have no effect: targets, of older
// versions, would leave an update open to all.
var fields = []string{"topic", "data", "private", "id", "type", "retry"}

// ParseUpdate reads the fields of a publication's form.
func ParseUpdate(form map[string][]string) (Update, error) {
	for _, name := range slices.Sorted(maps.Keys(form)) {
		switch {
		case !slices.Contains(fields, name):
			return Update{}, fmt.Errorf("the field %q is not served: the fields are %s", name, strings.Join(fields,
				", "))
		case len(form[name]) > 1 && name != "topic":
			return Update{}, fmt.Errorf("the field %s is given twice", name)
		}
	}
	first := func(name string) string {
		if list := form[name]; len(list) > 0 {
			return list[0]
		}
		return ""
	}
	u := Update{Topics: form["topic"], Data: first("data"), Private: len(form["private"]) > 0, ID: first("id"),
		Type: first("type"), Retry: first("retry")}
	return u, u.check()
}

func (u *Update) check() error {
	switch {
	case len(u.Topics) == 0:
		return errors.New("the field topic is missing")
	case len(u.Topics) > MaxTopics:
		return fmt.Errorf("%d topics: at most %d are allowed", len(u.Topics), MaxTopics)
	case !utf8.ValidString(u.Data):
		return errors.New("data is not UTF-8, as events must be")
	case strings.HasPrefix(u.ID, "#"):
		return errors.New("id begins with #, which is reserved")
	case u.ID == Earliest:
		return errors.New("id is earliest, which is reserved: subscribers ask for the whole history with it")
	}
	for _, topic := range u.Topics {
		if err := CheckTopic(topic); err != nil {
			return err
		}
	}
	for _, field := range []struct{ name, value string }{{"id", u.ID}, {"type", u.Type}} {
		if len(field.value) > maxField || !plain(field.value) {
			return fmt.Errorf("%s has more than %d bytes, is not UTF-8, or has control characters", field.name,
				maxField)
		}
	}
	if u.Retry != "" {
		if _, err := strconv.ParseUint(u.Retry, 10, 31); err != nil {
			return fmt.Errorf("retry is %q: write whole milliseconds", u.Retry)
		}
	}
	return nil
}

// The names of an update's tags. Together with Data they are the update.
const (
	tagTopics  = "topics" // with newlines between them, which no topic has
	tagPrivate = "private"
	tagID      = "id"
	tagType    = "type"
	tagRetry   = "retry"
)

// Tags returns everything but Data, for a publication's tags.
func (u *Update) Tags() map[string]string {
	tags := map[string]string{tagTopics: strings.Join(u.Topics, "\n")}
	if u.Private {
		tags[tagPrivate] = "on"
	}
	for name, value := range map[string]string{tagID: u.ID, tagType: u.Type, tagRetry: u.Retry} {
		if value != "" {
			tags[name] = value
		}
	}
	return tags
}

// FromTags is the inverse of Tags.
func FromTags(tags map[string]string, data string) Update {
	return Update{Topics: strings.Split(tags[tagTopics], "\n"), Data: data, Private: tags[tagPrivate] != "",
		ID: tags[tagID], Type: tags[tagType], Retry: tags[tagRetry]}
}

// AppendEvent appends the update as an event (WHATWG HTML §9.2.6). A line of data ends with LF, CR,
// or both; each becomes a field.
func (u *Update) AppendEvent(dst []byte) []byte {
	if u.Type != "" {
		dst = append(append(append(dst, "event: "...), u.Type...), '\n')
	}
	if u.Retry != "" {
		dst = append(append(append(dst, "retry: "...), u.Retry...), '\n')
	}
	dst = append(append(append(dst, "id: "...), u.ID...), '\n')
	for rest, more := u.Data, true; more; {
		var line string
		line, rest, more = cutLine(rest)
		dst = append(append(append(dst, "data: "...), line...), '\n')
	}
	return append(dst, '\n')
}

func cutLine(text string) (line, rest string, more bool) {
	i := strings.IndexAny(text, "\r\n")
	if i < 0 {
		return text, "", false
	}
	if strings.HasPrefix(text[i:], "\r\n") {
		return text[:i], text[i+2:], true
	}
	return text[:i], text[i+1:], true
}
