package redis_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/myriad-go/myriad/resp"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/doors/redis"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
	"github.com/myriad-go/myriad/server/push/membus"
	"github.com/myriad-go/myriad/workers"
)

// redis gives a live server its door for Redis, and returns the address.
func listenRedis(s *servertest.Live, t *testing.T) string {
	t.Helper()
	door := redis.Listener(s.Server, s.Engine)
	pool := workers.New(workers.Config{Queue: 1 << 10})
	door.Workers = pool // so that no command runs any more when the test has ended
	ln, err := door.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		door.Close()
		if err := pool.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

// A redisPeer sends lines and reads what is answered.
type redisPeer struct {
	t *testing.T
	net.Conn
}

func dialRedis(t *testing.T, addr string) *redisPeer {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(30 * time.Second))
	return &redisPeer{t, nc}
}

func (p *redisPeer) ask(line, want string) {
	p.t.Helper()
	if line != "" {
		io.WriteString(p, line+"\r\n")
	}
	got := make([]byte, len(want))
	n, err := io.ReadFull(p, got)
	if string(got[:n]) != want {
		p.t.Errorf("%.200s: %q, %v; want %q", line, got[:n], err, want)
	}
}

const errorBadRedisChannelLine = "-ERR the name of a channel is empty, too long, not UTF-8, " +
	"or has control characters\r\n"

func TestRedisDoor(t *testing.T) {
	s := servertest.NewLive(t, push.Config{})
	addr := listenRedis(s, t)
	p, q := dialRedis(t, addr), dialRedis(t, addr)
	web := s.SubscribeNews() // to "news"
	p.ask("SUBSCRIBE news other",
		"*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n*3\r\n$9\r\nsubscribe\r\n$5\r\nother\r\n:2\r\n")
	p.ask("SUBSCRIBE news", "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:2\r\n")
	p.ask("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n")
	p.ask("PSUBSCRIBE n*", "*3\r\n$10\r\npsubscribe\r\n$2\r\nn*\r\n:3\r\n")
	p.ask("SSUBSCRIBE news", "*3\r\n$10\r\nssubscribe\r\n$4\r\nnews\r\n:1\r\n")
	q.ask(`PUBLISH news "{\"a\":1}"`, ":4\r\n")
	const text = "$4\r\nnews\r\n$7\r\n{\"a\":1}\r\n"
	got := make([]byte,
		len("*3\r\n$7\r\nmessage\r\n"+text+"*3\r\n$8\r\nsmessage\r\n"+text+"*4\r\n$8\r\npmessage\r\n$2\r\nn*\r\n"+text))
	if _, err := io.ReadFull(p, got); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"*3\r\n$7\r\nmessage\r\n" + text, "*3\r\n$8\r\nsmessage\r\n" + text,
		"*4\r\n$8\r\npmessage\r\n$2\r\nn*\r\n" + text} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if _, message := web.Frame(); !strings.Contains(message, `"data":{"a":1}`) {
		t.Errorf("a browser got %q", message)
	}
	s.PublishNews(`"from the API"`)
	p.ask("", "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$14\r\n\"from the API\"\r\n")
	q.ask("PUBSUB NUMSUB news none", "*4\r\n$4\r\nnews\r\n:3\r\n$4\r\nnone\r\n:0\r\n")
	q.ask("PUBSUB CHANNELS o*", "*1\r\n$5\r\nother\r\n")
	q.ask("PUBSUB NUMPAT", ":1\r\n")
	q.ask("PUBLISH other \"plain text\"", ":1\r\n")
	q.ask("PUBLISH \"\" x", errorBadRedisChannelLine)
	dialRedis(t, addr).ask("SUBSCRIBE \"\"", errorBadRedisChannelLine)
	q.ask("ECHO \"a b\"", "$3\r\na b\r\n") // as clients for .NET do when they connect
	q.ask("*3\r\n$7\r\nPUBLISH\r\n$4\r\nnews\r\n$262145\r\n"+strings.Repeat("x", 262145),
		"-ERR message is 262145 bytes; the limit is 262144\r\n")
}

func TestRedisDoorRESP3AndReset(t *testing.T) {
	s := servertest.NewLive(t, push.Config{})
	addr := listenRedis(s, t)
	p, q := dialRedis(t, addr), dialRedis(t, addr)
	p.ask("HELLO 3", "%7\r\n")
	p.ask("PING x",
		"$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n"+
			"$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n$1\r\nx\r\n")
	p.ask("SUBSCRIBE a", ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
	p.ask("PUBLISH a \xff", ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\n\xff\r\n:1\r\n")
	p.ask("UNSUBSCRIBE", ">3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n")
	p.ask("PSUBSCRIBE a*", ">3\r\n$10\r\npsubscribe\r\n$2\r\na*\r\n:1\r\n")
	p.ask("SUBSCRIBE b", ">3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n")
	p.ask("RESET", "+RESET\r\n")
	q.ask("PUBLISH ab x", ":0\r\n")
	q.ask("PUBSUB NUMSUB b", "*2\r\n$1\r\nb\r\n:0\r\n")
	p.ask("PUNSUBSCRIBE", "*3\r\n$12\r\npunsubscribe\r\n$-1\r\n:0\r\n")
}

// Who may what: the API key publishes everywhere, a token has its rights, and a stranger none.
func TestRedisDoorRights(t *testing.T) {
	s := servertest.NewLive(t, push.Config{APIKey: "key", TokenSecret: tokentest.Secret,
		Namespaces: []push.Namespace{{Name: "", Publish: push.PublishToken}, {Name: "open"}, {Name: "own",
			SubscribeToken: true}}})
	addr := listenRedis(s, t)
	p := dialRedis(t, addr)
	p.ask("SUBSCRIBE news", "-NOAUTH Authentication required.\r\n")
	p.ask("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled.\r\n")
	p.ask("AUTH key", "+OK\r\n")
	p.ask("PUBLISH news x", ":0\r\n")
	q := dialRedis(t, addr)
	q.ask("AUTH "+tokentest.Tokens(t, time.Now())["good"], "+OK\r\n")
	q.ask("PUBLISH news x", "-NOPERM permission denied\r\n")
	q.ask("PUBLISH open:a x", ":0\r\n")
	q.ask("PUBSUB CHANNELS", "-NOPERM permission denied\r\n")
	q.ask("PSUBSCRIBE *", "*3\r\n$10\r\npsubscribe\r\n$1\r\n*\r\n:1\r\n")
	q.ask("SUBSCRIBE own:x", "-NOPERM permission denied\r\n")
	p.ask("PUBLISH own:x secret", ":1\r\n")
	p.ask("PUBLISH open:b hi", ":1\r\n")
	q.ask("", "*4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$6\r\nopen:b\r\n$2\r\nhi\r\n")
}

// A client that authenticates again with a newer token of its user keeps its subscriptions until
// that one expires, and has its rights. As another user it has nothing of the former one.
func TestRedisAuthenticatesAgain(t *testing.T) {
	clock := pushtest.NewClock()
	s := servertest.NewLive(t, push.Config{APIKey: "key", TokenSecret: tokentest.Secret, Clock: clock,
		Namespaces: []push.Namespace{{},
			{Name: "mine", SubscribeToken: true, Publish: push.PublishToken}}})
	addr := listenRedis(s, t)
	token := func(user string, left time.Duration, caps string) string {
		claims := jwt.MapClaims{"sub": user, "caps": json.RawMessage(caps)}
		if left != 0 {
			claims["exp"] = clock.Now().Add(left).Unix()
		}
		signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(tokentest.Secret))
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	const all, a = `[{"channels":["mine:*"],"match":"wildcard","allow":["sub","pub"]}]`,
		`[{"channels":["mine:a"],"allow":["sub"]}]`
	const expired = "-NOAUTH the token has expired: authenticate again with a new one\r\n"
	p, q, r := dialRedis(t, addr), dialRedis(t, addr), dialRedis(t, addr)
	r.ask("AUTH "+token("cy", 2*time.Second, all)+"\r\nPUBLISH mine:z x", "+OK\r\n:0\r\n")
	if count, err := s.Refresh(t.Context(), push.Target{User: "cy"}, push.RefreshOptions{
		ExpireAt: clock.Now().Add(time.Hour).Unix()}); count != 1 || err != nil {
		t.Errorf("%d were refreshed, %v", count, err)
	}
	p.ask("HELLO 3 AUTH x "+token("ann", 2*time.Second, all), "%7\r\n")
	readUntil(t, p, "*0\r\n")
	q.ask("AUTH "+token("ann", 2*time.Second, all), "+OK\r\n") // has no session, so that nothing ends it
	p.ask("SUBSCRIBE mine:a", ">3\r\n$9\r\nsubscribe\r\n$6\r\nmine:a\r\n:1\r\n")
	p.ask("AUTH "+token("ann", time.Hour, all), "+OK\r\n")
	p.ask("MULTI", "+OK\r\n")
	clock.Advance(3 * time.Second)
	q.ask("PUBLISH mine:a x", expired)
	r.ask("PUBLISH mine:z x", ":0\r\n") // the API has prolonged it
	q.ask("MULTI\r\nPING", expired+"+PONG\r\n")
	q.ask("AUTH "+token("ann", 0, a), "+OK\r\n")
	q.ask("PUBLISH mine:a x", "-NOPERM permission denied\r\n")
	q.ask("AUTH key\r\nPUBLISH mine:a x", "+OK\r\n:1\r\n")
	p.ask("", ">3\r\n$7\r\nmessage\r\n$6\r\nmine:a\r\n$1\r\nx\r\n")
	p.ask("DISCARD\r\nPUBLISH mine:b x", "+OK\r\n:0\r\n")
	p.ask("AUTH "+token("ann", time.Hour, a)+"\r\nPUBLISH mine:b x", "+OK\r\n-NOPERM permission denied\r\n")
	q.ask("AUTH "+token("bob", 0, a)+"\r\nPUBLISH mine:b x", "+OK\r\n-NOPERM permission denied\r\n")
	p.ask("AUTH "+token("bob", 0, all), "")
	if got, err := io.ReadAll(p); len(got) > 0 || err == nil {
		t.Errorf("as another user: %q, %v", got, err)
	}
}

// readUntil reads until the end of what has come is that.
func readUntil(t *testing.T, r io.Reader, end string) {
	t.Helper()
	var got []byte
	for one := make([]byte, 1); !strings.HasSuffix(string(got), end); {
		if _, err := io.ReadFull(r, one); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		got = append(got, one[0])
	}
}

// A client that may not have one of the channels gets none of them, as in Redis: it cannot know
// what it has after an error.
func TestRedisSubscribesToAllOrNone(t *testing.T) {
	asked := make(chan string, 10)
	s := servertest.NewLive(t, push.Config{TokenSecret: tokentest.Secret, Limits: push.Limits{Channels: 5},
		Namespaces: []push.Namespace{{}, {Name: "own", SubscribeToken: true}, {Name: "hook", SubscribeHook: true}},
		Hooks: push.Hooks{Subscribe: func(_ context.Context, _ push.Caller,
			r push.SubscribeRequest) (push.SubscribeAnswer, error) {
			asked <- r.Channel
			if r.Channel == "hook:no" {
				return push.SubscribeAnswer{}, push.Error{Code: 1000, Message: "no"}
			}
			return push.SubscribeAnswer{}, nil
		}}})
	addr := listenRedis(s, t)
	p := dialRedis(t, addr)
	p.ask("AUTH "+tokentest.Tokens(t, time.Now())["good"], "+OK\r\n")
	for _, tt := range []struct{ names, want string }{
		{"a own:x b", "-NOPERM permission denied\r\n"}, {"a hook:yes hook:no b", "-ERR no\r\n"},
		{"a b c d e f", "-ERR limit exceeded\r\n"}, {`a ""`, errorBadRedisChannelLine},
	} {
		p.ask("SUBSCRIBE "+tt.names, tt.want)
		p.ask("SSUBSCRIBE "+tt.names, tt.want)
	}
	p.ask("PSUBSCRIBE a* b* c* d* e* f*", "-ERR limit exceeded\r\n")
	for _, channel := range []string{"a", "b", "hook:yes"} { // a client that is not subscribed may also publish
		p.ask("PUBLISH "+channel+" x", ":0\r\n")
	}
	confirmed := func(words ...string) (lines string) {
		for i := 0; i < len(words); i += 2 {
			lines += fmt.Sprintf("*3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:%s\r\n", len(words[i]), words[i], words[i+1])
		}
		return lines
	}
	p.ask("SUBSCRIBE a a hook:yes", confirmed("a", "1", "a", "1", "hook:yes", "2"))
	p.ask("SUBSCRIBE b a hook:yes c", confirmed("b", "3", "a", "3", "hook:yes", "3", "c", "4"))
	p.ask("SUBSCRIBE a own:x", "-NOPERM permission denied\r\n")
	p.ask("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n")
	for len(asked) > 0 {
		if name := <-asked; !strings.HasPrefix(name, "hook:") {
			t.Errorf("a hook was asked about %q", name)
		}
	}
}

// Transactions are those of Redis: what is wrong is refused when it comes, and then none of the
// commands runs. The answers are those of redis-server 7.0.
func TestRedisTransactions(t *testing.T) {
	s := servertest.NewLive(t, push.Config{APIKey: "key", TokenSecret: tokentest.Secret,
		Limits:     push.Limits{Publication: 250_000, Batch: 1},
		Namespaces: []push.Namespace{{}, {Name: "shut", Publish: push.PublishNobody}}})
	addr := listenRedis(s, t)
	token := tokentest.Tokens(t, time.Now())["good"]
	watcher, p := dialRedis(t, addr), dialRedis(t, addr)
	for _, one := range []*redisPeer{watcher, p} {
		one.ask("AUTH "+token, "+OK\r\n")
	}
	watcher.ask("SUBSCRIBE a", "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
	p.ask("MULTI\r\nPUBLISH a 1\r\nPUBLISH a 2\r\nEXEC", "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n:1\r\n")
	message := func(text string) string {
		return fmt.Sprintf("*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$%d\r\n%s\r\n", len(text), text)
	}
	watcher.ask("", message("1")+message("2"))
	const aborted = "-EXECABORT Transaction discarded because of previous errors.\r\n"
	const not = "-ERR EXEC without MULTI\r\n"
	for _, tt := range []struct{ send, want string }{
		{"MULTI\r\nEXEC", "+OK\r\n*0\r\n"}, {"EXEC", not}, {"DISCARD", "-ERR DISCARD without MULTI\r\n"},
		{"MULTI\r\nMULTI\r\nECHO x\r\nEXEC",
			"+OK\r\n-ERR MULTI calls can not be nested\r\n+QUEUED\r\n*1\r\n$1\r\nx\r\n"},
		{"MULTI\r\nFOO\r\nPUBLISH a bad\r\nEXEC\r\nEXEC",
			"+OK\r\n-ERR unknown command 'FOO', with args beginning with: \r\n" +
				"+QUEUED\r\n" + aborted + not},
		{"MULTI\r\nPUBLISH a bad\r\nPUBLISH a\r\nEXEC",
			"+OK\r\n+QUEUED\r\n-ERR wrong number of arguments for 'publish' " +
				"command\r\n" + aborted},
		{"MULTI\r\nPUBLISH a bad\r\nPUBLISH shut:a x\r\nEXEC", "+OK\r\n+QUEUED\r\n-NOPERM permission denied\r\n" +
			aborted},
		{"MULTI\r\nPUBLISH a bad\r\nPUBLISH \"\" x\r\nEXEC", "+OK\r\n+QUEUED\r\n" + errorBadRedisChannelLine + aborted},
		{"MULTI\r\nPUBLISH a bad\r\nSUBSCRIBE a\r\nEXEC", "+OK\r\n+QUEUED\r\n-ERR Command not allowed inside a " +
			"transaction\r\n" + aborted},
		{"MULTI\r\nPUBLISH a bad\r\nEXEC 1\r\nEXEC",
			"+OK\r\n+QUEUED\r\n-EXECABORT Transaction discarded because of: wrong " +
				"number of arguments for 'exec' command\r\n" + not},
		{"MULTI\r\nPUBLISH a bad\r\nDISCARD\r\nEXEC", "+OK\r\n+QUEUED\r\n+OK\r\n" + not},
		{"MULTI\r\nPUBLISH a bad\r\n" + strings.Repeat("PUBLISH a "+strings.Repeat("x", 250_000)+"\r\n", 3) + "EXEC",
			"+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n-ERR the transaction is larger than 504096 bytes\r\n" + aborted},
	} {
		if len(tt.send) > 64<<10 { // a line is at most that long
			tt.send = inBulks(tt.send)
		}
		p.ask(tt.send, tt.want)
	}
	const wrong = "-ERR wrong number of arguments for "
	for _, tt := range []struct{ send, want string }{ // about the connection
		{"MULTI\r\nPING\r\nPING x\r\nPING x y\r\nEXEC\r\nPING", "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n" +
			"*3\r\n+PONG\r\n$1\r\nx\r\n" + wrong + "'ping' command\r\n+PONG\r\n"},
		{"MULTI\r\nCLIENT SETNAME me\r\nCLIENT GETNAME\r\nCLIENT REPLY ON\r\nAUTH nobody\r\nHELLO 9\r\nEXEC",
			"+OK\r\n" + strings.Repeat("+QUEUED\r\n", 5) + "*5\r\n+OK\r\n$2\r\nme\r\n+OK\r\n-WRONGPASS invalid " +
				"username-password pair or user is disabled.\r\n-NOPROTO unsupported protocol version\r\n"},
		{"MULTI\r\nPUBLISH a bad\r\nAUTH\r\nEXEC", "+OK\r\n+QUEUED\r\n" + wrong + "'auth' command\r\n" + aborted},
		{"MULTI\r\nPUBLISH a bad\r\nCLIENT\r\nEXEC", "+OK\r\n+QUEUED\r\n" + wrong + "'client' command\r\n" + aborted},
		{"MULTI\r\nPUBLISH a bad\r\nCLIENT NOPE\r\nEXEC",
			"+OK\r\n+QUEUED\r\n-ERR unknown subcommand 'NOPE'. Try CLIENT HELP.\r\n" + aborted},
		{"MULTI\r\nPUBLISH a bad\r\nCLIENT SETNAME\r\nEXEC",
			"+OK\r\n+QUEUED\r\n" + wrong + "'client|setname' command\r\n" + aborted},
		{"MULTI\r\nPUBLISH a bad\r\nCLIENT REPLY OFF\r\nCLIENT REPLY SKIP\r\nEXEC\r\nPING", "+OK\r\n+QUEUED\r\n" +
			strings.Repeat("-ERR Command not allowed inside a transaction\r\n", 2) + aborted + "+PONG\r\n"},
		{"MULTI\r\nPING\r\nDISCARD\r\nPING", "+OK\r\n+QUEUED\r\n+OK\r\n+PONG\r\n"},
		{"MULTI\r\nHELLO 3\r\nPING\r\nEXEC", "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n%7\r\n$6\r\nserver\r\n" +
			"$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:2\r\n$4\r\nmode\r\n" +
			"$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n+PONG\r\n"},
	} {
		p.ask(tt.send, tt.want)
	}
	p.ask("MULTI\r\nPUBLISH a bad\r\nRESET\r\nAUTH "+token+"\r\nEXEC", "+OK\r\n+QUEUED\r\n+RESET\r\n+OK\r\n"+not)
	stranger := dialRedis(t, addr)
	const noAuth = "-NOAUTH Authentication required.\r\n"
	stranger.ask("MULTI\r\nPUBLISH a bad\r\nEXEC", noAuth+noAuth+noAuth)
	p.ask("PUBLISH a last", ":1\r\n")
	watcher.ask("", message("last"))
}

// inBulks writes commands, of words without spaces, as arrays.
func inBulks(lines string) string {
	var all []string
	for line := range strings.SplitSeq(lines, "\r\n") {
		words := strings.Fields(line)
		all = append(all, fmt.Sprintf("*%d", len(words)))
		for _, word := range words {
			all = append(all, fmt.Sprintf("$%d", len(word)), word)
		}
	}
	return strings.Join(all, "\r\n")
}

// A token whose key is not known yet is no wrong password, which is final to clients.
func TestRedisDoorForAKeyThatIsNotKnownYet(t *testing.T) {
	server := tokentest.NewKeyServer(t)
	server.Set(500)
	s := servertest.NewLive(t, push.Config{TokenKeysURL: server.URL})
	p := dialRedis(t, listenRedis(s, t))
	io.WriteString(p, "AUTH "+tokentest.SignNamed(t, jwt.SigningMethodEdDSA, tokentest.NewSigners().Ed25519, "o",
		jwt.MapClaims{"sub": "a"})+"\r\n")
	if got, err := io.ReadAll(p); len(got) > 0 {
		t.Errorf("received %q, %v", got, err)
	}
}

// The rate of a user's connections counts those of Redis, too. A new token of the same user is
// none.
func TestRedisDoorCountsUsers(t *testing.T) {
	s := servertest.NewLive(t, push.Config{TokenSecret: tokentest.Secret,
		Rates: push.Rates{UserConnections: push.Rate{Count: 2,
			Per: time.Hour}}})
	addr := listenRedis(s, t)
	token := tokentest.Sign(t, jwt.SigningMethodHS256, []byte(tokentest.Secret), jwt.MapClaims{"sub": "ann"})
	p := dialRedis(t, addr)
	for range 5 {
		p.ask("AUTH "+token, "+OK\r\n")
	}
	dialRedis(t, addr).ask("AUTH "+token, "+OK\r\n")
	third := dialRedis(t, addr)
	io.WriteString(third, "AUTH "+token+"\r\n")
	if got, err := io.ReadAll(third); len(got) > 0 {
		t.Errorf("the third connection got %q, %v", got, err)
	}
	p.ask("PING", "+PONG\r\n")
	if log := s.Log.String(); !strings.Contains(log, "reason=rate") {
		t.Errorf("the log does not have the refusal:\n%s", log)
	}
}

// Patterns are bounded, and so are the subscriptions of one client.
func TestRedisDoorLimits(t *testing.T) {
	s := servertest.NewLive(t, push.Config{Limits: push.Limits{Channels: 3}})
	addr := listenRedis(s, t)
	p := dialRedis(t, addr)
	p.ask("SUBSCRIBE a b c", strings.Join([]string{"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n",
		"*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n",
		"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:3\r\n"}, ""))
	p.ask("SUBSCRIBE d", "-ERR limit exceeded\r\n")
	p.ask("PSUBSCRIBE d", "-ERR limit exceeded\r\n")
}

// A client of Redis that does not read is disconnected, as all others are.
func TestRedisDoorSlow(t *testing.T) {
	s := servertest.NewLive(t, push.Config{Limits: push.Limits{Queue: 256 << 10}})
	addr := listenRedis(s, t)
	p := dialRedis(t, addr)
	p.ask("SUBSCRIBE news", "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n")
	c := &resp.Client{Addr: addr, Engine: s.Engine}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	data := strings.Repeat("x", 100_000)
	for {
		v, err := c.Do(ctx, "PUBLISH", "news", data)
		if err != nil {
			t.Fatal(err)
		}
		if v.Int == 0 {
			break
		}
	}
	if !strings.Contains(s.Log.String(), "disconnected a slow client") {
		t.Error("the log does not say that it was slow")
	}
}

// A hook's Disconnect is the answer to a command, and the end of the connection.
func TestRedisDisconnectByHook(t *testing.T) {
	ban := push.Disconnect{Code: 4501, Reason: "banned"}
	s := servertest.NewLive(t, push.Config{APIKey: "key", Namespaces: []push.Namespace{{SubscribeHook: true,
		PublishHook: true}},
		Hooks: push.Hooks{
			Subscribe: func(context.Context, push.Caller, push.SubscribeRequest) (push.SubscribeAnswer, error) {
				return push.SubscribeAnswer{}, ban
			},
			Publish: func(context.Context, push.Caller, push.PublishRequest) (push.PublishAnswer, error) {
				return push.PublishAnswer{}, ban
			},
		}})
	addr := listenRedis(s, t)
	for _, command := range []string{"SUBSCRIBE a", "PUBLISH a 1"} {
		c := dialRedis(t, addr)
		c.ask(command, "-ERR banned\r\n")
		if n, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%s: then %d bytes, %v", command, n, err)
		}
	}
	counts, _, _ := s.Refusals(0)
	if n := counts["hook"]; n != 2 {
		t.Errorf("%d refusals by a hook are counted, want 2", n)
	}
}

// A channel that the token names is the client's, and no hook is asked about it.
func TestRedisChannelsOfTheToken(t *testing.T) {
	s := servertest.NewLive(t, push.Config{TokenSecret: tokentest.Secret,
		Namespaces: []push.Namespace{{SubscribeHook: true}},
		Hooks: push.Hooks{Subscribe: func(_ context.Context, _ push.Caller,
			r push.SubscribeRequest) (push.SubscribeAnswer, error) {
			return push.SubscribeAnswer{}, push.ErrPermissionDenied
		}}})
	c := dialRedis(t, listenRedis(s, t))
	c.ask("AUTH "+tokentest.Sign(t, jwt.SigningMethodHS256, []byte(tokentest.Secret), jwt.MapClaims{"sub": "ann",
		"exp": time.Now().Unix() + 600, "channels": []string{"mine"}}), "+OK\r\n")
	c.ask("SUBSCRIBE mine other", "-NOPERM permission denied\r\n")
	c.ask("SUBSCRIBE mine", "*3\r\n$9\r\nsubscribe\r\n$4\r\nmine\r\n:1\r\n")
}

// In RESP3 messages come between replies, never inside of one: not inside of EXEC's, which has the
// replies of the publications that cause them. CLIENT REPLY OFF does not stop them.
func TestRedisMessagesBesideReplies(t *testing.T) {
	s := servertest.NewLive(t, push.Config{})
	p := dialRedis(t, listenRedis(s, t))
	p.ask("HELLO 3", "%7\r\n")
	readUntil(t, p, "*0\r\n")
	p.ask("SUBSCRIBE a", ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
	message := func(text string) string { return ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\n" + text + "\r\n" }
	p.ask("MULTI\r\nPUBLISH a 1\r\nECHO x\r\nPUBLISH a 2\r\nEXEC", "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n"+
		message("1")+message("2")+"*3\r\n:1\r\n$1\r\nx\r\n:1\r\n")
	p.ask("CLIENT REPLY OFF\r\nPUBLISH a 3\r\nPING\r\nCLIENT REPLY ON\r\nPING", message("3")+"+OK\r\n+PONG\r\n")
}

// A pattern that costs as much as all names together is refused, where there is no other bound.
func TestRedisPatternsAreBounded(t *testing.T) {
	s := servertest.NewLive(t, push.Config{})
	p := dialRedis(t, listenRedis(s, t))
	long := "*[" + strings.Repeat("z", 20_000) + "]"
	p.ask("PUBSUB CHANNELS "+long, "-ERR the pattern is longer than the name of a channel may be\r\n")
	p.ask("PSUBSCRIBE "+long, "-ERR limit exceeded\r\n")
	p.ask("PUBSUB NUMPAT", ":0\r\n")
}

// mustEnd reads the end of the connection.
func (p *redisPeer) mustEnd() {
	p.t.Helper()
	if rest, err := io.ReadAll(p); err != nil || len(rest) > 0 {
		p.t.Errorf("the connection ends with %q, %v", rest, err)
	}
}

// A client that comes while the server drains, or that comes too often, gets the error after which
// client libraries connect again. What a client publishes while the server drains is answered with
// the one after which they repeat a command.
func TestRedisClientsThatComeTooEarly(t *testing.T) {
	const tooMany = "-ERR max number of clients reached\r\n"
	s := servertest.NewLive(t, push.Config{
		Rates: push.Rates{AddressConnections: push.Rate{Count: 2, Per: time.Hour}}})
	addr := listenRedis(s, t)
	p, _ := dialRedis(t, addr), dialRedis(t, addr)
	p.ask("PUBLISH news 1", ":0\r\n")
	often := dialRedis(t, addr)
	often.ask("", tooMany)
	often.mustEnd()
	s.Drain()
	p.ask("PUBLISH news 1", "-LOADING the server is shutting down, in ")
	late := dialRedis(t, addr)
	late.ask("", tooMany)
	late.mustEnd()
}

// Publications that are refused because of overload are answered with the error after which client
// libraries repeat a command, also within a transaction. A refusal for good has another one.
func TestRedisPublishersOfAFullServer(t *testing.T) {
	s := servertest.NewLive(t, push.Config{Bus: pushtest.FullBus{Local: membus.New(membus.Config{})}})
	p := dialRedis(t, listenRedis(s, t))
	r := bufio.NewReader(p)
	line := func(command string) string {
		io.WriteString(p, command+"\r\n")
		got, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(got)
	}
	full := regexp.MustCompile(`^-LOADING more is published than can be delivered: publish again later, in [1-9]\d? s$`)
	for _, command := range []string{"PUBLISH news 1", "SPUBLISH news 1"} {
		if got := line(command); !full.MatchString(got) {
			t.Errorf("%s: %q", command, got)
		}
	}
	for _, step := range [][2]string{{"MULTI", "+OK"}, {"PUBLISH news 1", "+QUEUED"}, {"EXEC", "*1"}} {
		if got := line(step[0]); got != step[1] {
			t.Errorf("%s: %q", step[0], got)
		}
	}
	if got, err := r.ReadString('\n'); err != nil || !full.MatchString(strings.TrimSpace(got)) {
		t.Errorf("in a transaction: %q, %v", got, err)
	}
	if got := line("PUBLISH \x01 1"); !strings.HasPrefix(got, "-ERR ") {
		t.Errorf("a name that no channel has: %q", got)
	}
}
