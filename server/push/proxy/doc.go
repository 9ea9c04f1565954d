// Package proxy lets a backend decide what the clients of a push server may do, by HTTP.
//
//	config := push.Config{APIKey: "key"}
//	err := proxy.Config{Connect: "http://127.0.0.1:3000/connect", Headers: []string{"Cookie"}}.Apply(&config)
//	server, err := push.New(config)
//
// Each hook is a POST with a JSON object, and the answer is {"result": {…}}, {"error": {"code",
// "message"}} or {"disconnect": {"code", "reason"}}. Names and fields are those of Centrifugo's
// proxies, so that backends written for them work. docs/guides/proxy.md lists them.
package proxy
