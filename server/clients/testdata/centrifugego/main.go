// The command subscribes with centrifuge-go and prints one line for everything that happens.
//
// Usage: client json|protobuf URL CHANNEL. A line on standard input is published to the channel.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"

	"github.com/centrifugal/centrifuge-go"
)

func main() {
	codec, url, channel := os.Args[1], os.Args[2], os.Args[3]
	newClient := centrifuge.NewJsonClient
	if codec == "protobuf" {
		newClient = centrifuge.NewProtobufClient
	}
	client := newClient(url, centrifuge.Config{})
	client.OnConnecting(func(e centrifuge.ConnectingEvent) { fmt.Println("connecting", e.Code, e.Reason) })
	client.OnDisconnected(func(e centrifuge.DisconnectedEvent) { fmt.Println("disconnected", e.Code, e.Reason) })
	client.OnError(func(e centrifuge.ErrorEvent) { fmt.Println("error", e.Error) })
	subscription, err := client.NewSubscription(channel)
	if err != nil {
		log.Fatal(err)
	}
	subscription.OnSubscribed(func(centrifuge.SubscribedEvent) { fmt.Println("subscribed") })
	subscription.OnPublication(func(e centrifuge.PublicationEvent) { fmt.Println("publication", string(e.Data)) })
	if err := subscription.Subscribe(); err != nil {
		log.Fatal(err)
	}
	if err := client.Connect(); err != nil {
		log.Fatal(err)
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		ask(subscription, lines.Bytes())
	}
}

// ask publishes, and then asks who is present and what the history has.
func ask(s *centrifuge.Subscription, data []byte) {
	if _, err := s.Publish(context.Background(), data); err != nil {
		fmt.Println("publish-error", err)
		return
	}
	present, err := s.Presence(context.Background())
	if err != nil {
		fmt.Println("presence-error", err)
		return
	}
	history, err := s.History(context.Background(), centrifuge.WithHistoryLimit(10))
	if err != nil {
		fmt.Println("history-error", err)
		return
	}
	fmt.Printf("present %d, history %d\n", len(present.Clients), len(history.Publications))
}
