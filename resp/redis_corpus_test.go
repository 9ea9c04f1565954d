package resp

import (
	"io"
	"math/rand/v2"
	"net"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/internal/soak"
)

// numbers are lengths and counts as peers might send them.
var numbers = []string{"", "0", "1", "2", "3", "9", "10", "99", "100", "00", "01", "007", "+1", "++1", "-0", "-1", "-2",
	"--1", "-9223372036854775808", "-9223372036854775809", "9223372036854775807", "9223372036854775808",
	"18446744073709551615", "18446744073709551616", "99999999999999999999999999", "2147483647", "2147483648",
	"4294967296", "1048577", "536870912", "536870913", "1.0", "1e3", "0x1", "1,0", " 1", "1 ", "\t1", "1\t", "1\n",
	"\n1", "1\x00", "\x001", "1\x002", "a", "nan", "inf", "?", "-", "+", "1-", "1+1", "\xff", "１", "1\r", "\r1"}

// corpus is malformed input made by rule: each byte in place of a type, each number in place of a
// length, nesting, and values that only servers send.
func corpus() (in []string) {
	for b := range 256 {
		c := string([]byte{byte(b)})
		in = append(in, c+"1\r\n$4\r\nPING\r\n", "*1\r\n"+c+"4\r\nPING\r\n", "*1\r\n$4"+c+"\nPING\r\n",
			"*1"+c+"\n$4\r\nPING\r\n", "*1\r\n$4\r\nPING"+c+c+"PING\r\n", "*2\r\n$4\r\nECHO\r\n$1\r\n"+c+"\r\n",
			"ECHO "+c+"\r\n", "ECHO a"+c+"b\r\n", "ECHO \""+c+"\"\r\n", "ECHO \"\\"+c+"\"\r\n", "ECHO '\\"+c+"'\r\n",
			"*1\r\n$5\r\nPING"+c+"\r\n", c+"\r\nPING\r\n")
	}
	for _, n := range numbers {
		in = append(in, "*"+n+"\r\n$4\r\nPING\r\nPING\r\n", "*1\r\n$"+n+"\r\nPING\r\nPING\r\n",
			"*2\r\n$4\r\nECHO\r\n$"+n+"\r\na\r\nPING\r\n", "*"+n+"\n$4\nPING\n", "PING\r\n*"+n+"\r\n",
			"$"+n+"\r\nPING\r\n",
			"*2\r\n$4\r\nECHO\r\n*"+n+"\r\n$1\r\na\r\n", "HELLO "+n+"\r\n", "*2\r\n$5\r\nHELLO\r\n$"+n+"\r\n3\r\n")
		for _, kind := range "+-:_#,(!=%~>|;." {
			in = append(in, string(kind)+n+"\r\nPING\r\n", "*2\r\n$4\r\nECHO\r\n"+string(kind)+n+"\r\na\r\n")
		}
	}
	for _, depth := range []int{2, 3, 100, 5000} {
		in = append(in, strings.Repeat("*1\r\n", depth)+"$4\r\nPING\r\n", strings.Repeat("*-1\r\n", depth)+"PING\r\n",
			strings.Repeat("*0\r\n", depth)+"PING\r\n", strings.Repeat("\r\n", depth)+"PING\r\n",
			"*2\r\n$4\r\nECHO\r\n"+strings.Repeat("*1\r\n", depth),
			strings.Repeat("%1\r\n", min(depth, 1000))) // Redis drops what does not fit the socket when its peer ends
	}
	return append(in, "*3\r\n$4\r\nECHO\r\n$1\r\na\r\n", "*2\r\n$4\r\nECHO\r\n$10\r\nabc", "*2\r\n$4\r\nEC",
		"*2\r\n$4", "*2", "*", "PIN", "*2\r\n$?\r\n;4\r\nECHO\r\n;0\r\n", "*?\r\n$4\r\nPING\r\n.\r\n",
		"%2\r\n$4\r\nECHO\r\n$1\r\na\r\n",
		"~1\r\n$4\r\nPING\r\n", ">1\r\n$4\r\nPING\r\n", "|1\r\n+a\r\n+b\r\n*1\r\n$4\r\nPING\r\n",
		"*1\r\n=8\r\ntxt:PING\r\n", "*1\r\n!4\r\nPING\r\n", "*1\r\n_\r\n", "*1\r\n#t\r\n", "*1\r\n,1.5\r\n",
		"*1\r\n(1\r\n")
}

// damaged is a pipeline of good commands in which some bytes have been changed.
func damaged(r *rand.Rand) string {
	good := []string{"PING\r\n", "*1\r\n$4\r\nPING\r\n", "*2\r\n$4\r\nECHO\r\n$3\r\na b\r\n", "ECHO 'x y'\r\n",
		"*2\r\n$3\r\nGET\r\n$4\r\nnone\r\n", "*0\r\n", "\r\n", "GET none\r\n", "*2\r\n$4\r\necho\r\n$0\r\n\r\n"}
	var p []byte
	for range 1 + r.IntN(5) {
		p = append(p, good[r.IntN(len(good))]...)
	}
	const bytes = "\r\n\x00\"'\\ *$:+-0123456789\xff\x80aE"
	for range 1 + r.IntN(3) {
		i := r.IntN(len(p))
		switch b := bytes[r.IntN(len(bytes))]; r.IntN(4) {
		case 0:
			p[i] = b
		case 1:
			p = append(p[:i], append([]byte{b}, p[i:]...)...)
		case 2:
			if p = append(p[:i], p[i+1:]...); len(p) == 0 {
				return "\x00"
			}
		default:
			j := i + r.IntN(len(p)-i)
			p = append(p, p[i:j]...)
		}
	}
	return string(p)
}

// Whatever is sent, in either protocol, is answered as redis-server answers it.
func TestCorpusLikeRedis(t *testing.T) {
	socket := redis(t)
	addr := serve(t, &Server{})
	inputs := corpus()
	r := rand.New(rand.NewPCG(1, 2))
	if !soak.On(t) {
		r.Shuffle(len(inputs), func(i, j int) { inputs[i], inputs[j] = inputs[j], inputs[i] })
		inputs = inputs[:500]
	}
	for range soak.Size(t, 500, 20_000) {
		inputs = append(inputs, damaged(r))
	}
	id := regexp.MustCompile(`\$2\r\nid\r\n:\d+\r\n`)
	for _, hello := range []string{"", "HELLO 3\r\n"} {
		for _, in := range inputs {
			want := id.ReplaceAllString(answerTo(t, "unix", socket, hello+in), "")
			if got := id.ReplaceAllString(answerTo(t, "tcp", addr, hello+in), ""); got != want {
				t.Errorf("%.200q: got %.200q, redis-server says %.200q", hello+in, got, want)
			}
		}
	}
}

// What peers announce costs nothing before it comes.
func TestAnnouncedLengthsOnConnections(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d Dispatch) {
		addr := serve(t, &Server{Dispatch: d})
		before := heapBytes()
		var peers []net.Conn
		for _, in := range []string{"*1048576\r\n$536870911\r\n", "*1\r\n$50000000\r\nabc", "*1048576\r\n",
			"*3\r\n$3\r\nSET\r\n$60000000\r\n", strings.Repeat("PING\r\n", 100) +
				"*2\r\n$4\r\nECHO\r\n$67000000\r\nx"} {
			for range 20 {
				nc, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				defer nc.Close()
				_, _ = io.WriteString(nc, "PING\r\n"+in) // it may be refused
				if _, err := io.ReadFull(nc, make([]byte, len("+PONG\r\n"))); err != nil {
					t.Fatal(err)
				}
				peers = append(peers, nc)
			}
		}
		if each := (heapBytes() - before) / len(peers); each > 8<<10 {
			t.Errorf("a connection takes %d bytes", each)
		}
		runtime.KeepAlive(peers)
	})
}

// heapBytes is what is reachable.
func heapBytes() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
