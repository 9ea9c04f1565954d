// Command grpcgo calls the gRPC API with grpc-go and Centrifugo's api.proto. It is a module of its
// own, so that the server module does not require grpc-go. For each call it prints the reply, or
// the status. With the argument retry it publishes twice, and says how long the second call took.
package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"time"

	"github.com/bufbuild/protocompile"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// A client calls one server.
type client struct {
	conn    *grpc.ClientConn
	service protoreflect.ServiceDescriptor
}

func main() {
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{}}
	files, err := compiler.Compile(context.Background(), os.Args[3])
	check(err)
	conn, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(repeats))
	check(err)
	defer conn.Close()
	c := client{conn, files[0].Services().ByName("CentrifugoApi")}
	if len(os.Args) > 4 && os.Args[4] == "retry" {
		c.publishTwice(os.Args[2])
		return
	}
	c.calls(os.Args[2])
}

// repeats has calls repeated once, after a hundredth of a second if the server does not say when.
const repeats = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 2, "initialBackoff": "0.01s",
	"maxBackoff": "0.01s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"]}}]}`

func (c client) publishTwice(key string) {
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "apikey "+key)
	c.say(ctx, "Publish", `{"channel":"news","data":"MQ=="}`)
	began := time.Now()
	c.say(ctx, "Publish", `{"channel":"news","data":"Mg=="}`)
	fmt.Println("took", time.Since(began).Milliseconds())
}

func (c client) calls(key string) {
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "apikey "+key)
	c.say(ctx, "Publish", `{"channel":"news","data":"`+base64.StdEncoding.EncodeToString([]byte(`{"n":1}`))+`"}`)
	c.say(ctx, "Publish", `{"channel":"news","data":"MQ=="}`, grpc.UseCompressor(gzip.Name))
	c.say(ctx, "Publish", `{"data":"MQ=="}`)
	c.say(ctx, "PresenceStats", `{"channel":"news"}`)
	c.say(ctx, "Batch", `{"commands":[{"publish":{"channel":"news","data":"MQ=="}},{"channels":{}},{"rpc":{"method":"m"}}]}`)
	c.say(ctx, "RPC", `{"method":"m"}`)
	c.say(ctx, "BlockUser", `{"user":"ann"}`)
	c.say(metadata.AppendToOutgoingContext(ctx, "x-centrifugo-error-mode", "transport"), "Publish", `{"channel":"news"}`)
	c.say(context.Background(), "Info", `{}`)
	late, cancel := context.WithTimeout(ctx, time.Nanosecond)
	defer cancel()
	c.say(late, "Info", `{}`)
	done := make(chan error)
	for range 1000 {
		go func() { done <- c.call(ctx, "Publish", `{"channel":"many","data":"MQ=="}`, nil) }()
	}
	failed := 0
	for range 1000 {
		if err := <-done; err != nil {
			failed++
			fmt.Println("at once:", err)
		}
	}
	fmt.Println("at once:", 1000-failed)
}

// call makes a call with a request in Protobuf's JSON, and returns the reply in JSON if it succeeds.
func (c client) call(ctx context.Context, name, request string, reply *string, options ...grpc.CallOption) error {
	method := c.service.Methods().ByName(protoreflect.Name(name))
	in, out := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
	check(protojson.Unmarshal([]byte(request), in))
	err := c.conn.Invoke(ctx, fmt.Sprintf("/%s/%s", c.service.FullName(), name), in, out, options...)
	if err == nil && reply != nil {
		*reply = out.String()
	}
	return err
}

func (c client) say(ctx context.Context, name, request string, options ...grpc.CallOption) {
	var reply string
	if err := c.call(ctx, name, request, &reply, options...); err != nil {
		s := status.Convert(err)
		fmt.Println(name+":", s.Code(), s.Message(), len(s.Proto().GetDetails()))
		return
	}
	fmt.Println(name+":", reply)
}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
