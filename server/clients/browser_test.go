package clients

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// A browser is a tab of a headless Chromium, controlled by WebDriver (W3C) through chromedriver.
type browser struct {
	t       *testing.T
	session string // its URL
}

// chromium is the one that all tests share, because a start of it takes seconds of CPU.
var chromium struct {
	driver  *process // nil before the first test that needs it
	session string
	tab     string // the first one, which no test uses
	profile string // its directory
}

// startBrowser opens a tab without cookies until the test ends. If Chromium is not installed, it
// skips the test, or fails it where clients are required.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	if chromium.driver == nil {
		startChromium(t)
	}
	b := &browser{t: t, session: chromium.session}
	var opened struct{ Handle string }
	b.decode(b.do("POST", "/window/new", map[string]any{"type": "tab"}), &opened)
	b.do("POST", "/window", map[string]any{"handle": opened.Handle})
	t.Cleanup(func() {
		b.do("DELETE", "/window", nil)
		b.do("POST", "/window", map[string]any{"handle": chromium.tab})
	})
	b.devtools("Network.clearBrowserCookies", map[string]any{})
	b.complaints() // those of earlier tests
	return b
}

func startChromium(t *testing.T) {
	t.Helper()
	driver, err := exec.LookPath("chromedriver")
	program, err2 := exec.LookPath("chromium")
	if err != nil || err2 != nil {
		missing(t, "Chromium", "apt-get install chromium chromium-driver")
	}
	if chromium.profile, err = os.MkdirTemp("", "chromium"); err != nil {
		t.Fatal(err)
	}
	process, port := startDriver(t, driver)
	chromium.driver = process
	b := &browser{t: t, session: "http://127.0.0.1:" + port + "/session"}
	var answer struct{ SessionID string }
	b.decode(b.do("POST", "", map[string]any{"capabilities": map[string]any{"alwaysMatch": map[string]any{
		"browserName": "chrome", "acceptInsecureCerts": true,
		"goog:chromeOptions": map[string]any{
			"binary": program,
			"args": []string{"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
				"--force-color-profile=srgb", "--user-data-dir=" + chromium.profile},
		},
		"goog:loggingPrefs": map[string]string{"browser": "ALL"},
	}}}), &answer)
	b.session += "/" + answer.SessionID
	chromium.session = b.session
	b.decode(b.do("GET", "/window", nil), &chromium.tab)
}

// endChromium ends what startChromium has started. Chromium's processes may still write to the
// profile after the session has ended.
func endChromium() error {
	if chromium.driver == nil {
		return nil
	}
	r, err := http.NewRequest("DELETE", chromium.session, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err == nil {
		answer.Body.Close()
	}
	chromium.driver.kill()
	removed := os.RemoveAll(chromium.profile)
	for end := time.Now().Add(patience); removed != nil && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		removed = os.RemoveAll(chromium.profile)
	}
	return errors.Join(err, removed)
}

// startDriver starts chromedriver and returns its port. With port 0, chromedriver takes a port that
// is free on ::1, and exits if a socket on 127.0.0.1 has the same port, even one in TIME_WAIT. So
// startDriver passes ports that are free on 127.0.0.1 until one works.
func startDriver(t *testing.T, driver string) (p *process, port string) {
	t.Helper()
	for range 20 {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		port = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
		p = launch(t, nil, nil, driver, "--port="+port)
		if p.want(`started successfully|port not available`)[0] == "started successfully" {
			return p, port
		}
		p.kill()
	}
	t.Fatal("chromedriver refused 20 ports that were free on 127.0.0.1")
	return nil, ""
}

// do sends a command and returns its value.
func (b *browser) do(method, path string, body any) json.RawMessage {
	b.t.Helper()
	text := []byte{}
	if body != nil {
		text, _ = json.Marshal(body) // maps of strings and numbers can always be encoded
	}
	r, err := http.NewRequest(method, b.session+path, bytes.NewReader(text))
	if err != nil {
		b.t.Fatal(err)
	}
	c := http.Client{Timeout: 2 * patience}
	defer c.CloseIdleConnections()
	res, err := c.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	var answer struct{ Value json.RawMessage }
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || res.StatusCode != http.StatusOK {
		b.t.Fatalf("%s %s: %s: %s, %v", method, path, res.Status, answer.Value, err)
	}
	return answer.Value
}

func (b *browser) decode(value json.RawMessage, to any) {
	b.t.Helper()
	if err := json.Unmarshal(value, to); err != nil {
		b.t.Fatalf("%s: %v", value, err)
	}
}

func (b *browser) open(url string) {
	b.t.Helper()
	b.do("POST", "/url", map[string]any{"url": url})
}

// run runs the body of a function in the page and decodes what it returns.
func (b *browser) run(script string, to any) {
	b.t.Helper()
	value := b.do("POST", "/execute/sync", map[string]any{"script": script, "args": []any{}})
	if to != nil {
		b.decode(value, to)
	}
}

// until waits for an expression in the page to become true.
func (b *browser) until(expression string) {
	b.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var is bool
		if b.run("return Boolean("+expression+")", &is); is {
			return
		}
		if time.Now().After(end) {
			var text string
			b.run("return document.body.innerText", &text)
			b.t.Fatalf("timed out: %s; the page says\n%s", expression, text)
		}
	}
}

const (
	tab   = "\ue004"
	enter = "\ue007"
	all   = "\ue009a\ue009" // Ctrl down, a, and up
)

// press sends keys to the focused element.
func (b *browser) press(keys string) {
	b.t.Helper()
	var active map[string]string
	b.decode(b.do("GET", "/element/active", nil), &active)
	for _, id := range active {
		b.do("POST", "/element/"+id+"/value", map[string]any{"text": keys})
	}
}

func (b *browser) devtools(command string, parameters map[string]any) {
	b.t.Helper()
	b.do("POST", "/goog/cdp/execute", map[string]any{"cmd": command, "params": parameters})
}

// look sets the size of the window and the preferred colour scheme.
func (b *browser) look(width int, scheme string) {
	b.t.Helper()
	b.devtools("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "screenWidth": width,
		"screenHeight": 900, "deviceScaleFactor": 1, "mobile": width < 600})
	b.devtools("Emulation.setEmulatedMedia",
		map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}})
}

// screenshot saves a picture of the whole page in the directory MYRIAD_SCREENSHOTS.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	dir := os.Getenv("MYRIAD_SCREENSHOTS")
	if dir == "" {
		return
	}
	var picture struct{ Data string }
	b.decode(b.do("POST", "/goog/cdp/execute", map[string]any{
		"cmd": "Page.captureScreenshot", "params": map[string]any{"captureBeyondViewport": true},
	}), &picture)
	data, err := base64.StdEncoding.DecodeString(picture.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), data, 0o644)
	}
	if err != nil {
		b.t.Error(err)
	}
}

// complaints returns the errors of the browser's console: broken scripts, requests that failed, and
// violations of the policy.
func (b *browser) complaints() (found []string) {
	b.t.Helper()
	var entries []struct{ Level, Message string }
	b.decode(b.do("POST", "/se/log", map[string]any{"type": "browser"}), &entries)
	for _, e := range entries {
		if e.Level == "SEVERE" || e.Level == "WARNING" {
			found = append(found, fmt.Sprintf("%s: %s", e.Level, e.Message))
		}
	}
	return found
}
