package main

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	for _, tt := range []struct{ name, in, want, err string }{
		{"sorted", `{"Action":"pass","Package":"a","Test":"T","Elapsed":9}
			{"Action":"pass","Package":"a","Elapsed":1.4}
			{"Action":"skip","Package":"no tests"}
			{"Action":"pass","Package":"b","Elapsed":70.2}
			{"Action":"pass","Package":"c","Elapsed":0.3}
			{"Action":"pass","Package":"d","Elapsed":0.4}`,
			"| package | seconds |\n|---|--:|\n| `b` | 70 |\n| `a` | 1 |\n| 2 others | 1 |\n", ""},
		{"failed", `{"Action":"fail","Package":"a","Elapsed":1}`, "", "the tests of a have failed"},
		{"not JSON", "ok  	a	1.0s", "", "not the output of go test -json"},
		{"nothing", "", "", "no package has passed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			err := report(strings.NewReader(tt.in), &out)
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if out.String() != tt.want {
				t.Errorf("printed\n%swant\n%s", out.String(), tt.want)
			}
		})
	}
}
