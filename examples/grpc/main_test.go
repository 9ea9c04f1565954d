package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/myriad-go/myriad/examples/exampletest"
	"github.com/myriad-go/myriad/examples/grpc/sums"
	"github.com/myriad-go/myriad/internal/soak"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// start serves the calculator and returns its address.
func start(t *testing.T, opts ...grpc.ServerOption) (addr string) {
	s := grpc.NewServer(opts...)
	sums.RegisterSumsServer(s, calculator{})
	return serve(t, s)
}

// serve serves s until the test ends, after its clients have left.
func serve(t *testing.T, s *grpc.Server) (addr string) {
	t.Helper()
	server := newServer(s)
	ln, err := server.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), exampletest.Patience)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		s.Stop()
	})
	return ln.Addr().String()
}

// connect is a client with a connection of its own.
func connect(t *testing.T, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	c, err := grpc.NewClient("passthrough:///"+addr, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), exampletest.Patience)
	t.Cleanup(cancel)
	return ctx
}

func TestUnary(t *testing.T) {
	c := sums.NewSumsClient(connect(t, start(t)))
	if n, err := c.Double(patience(t), wrapperspb.Int64(21)); err != nil || n.Value != 42 {
		t.Errorf("got %v, %v", n, err)
	}
	_, err := c.Double(patience(t), wrapperspb.Int64(-1))
	if s := status.Convert(err); s.Code() != codes.InvalidArgument || s.Message() != "-1 is negative" {
		t.Errorf("a wrong argument: %v", err)
	}
}

func TestStreams(t *testing.T) {
	c, ctx := sums.NewSumsClient(connect(t, start(t))), patience(t)
	total, err := c.Total(ctx)
	for i := range 1000 {
		if err == nil {
			err = total.Send(wrapperspb.Int64(int64(i)))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if n, err := total.CloseAndRecv(); err != nil || n.Value != 499500 {
		t.Errorf("Total: %v, %v", n, err)
	}
	count, err := c.Count(ctx, wrapperspb.Int64(1000))
	if err != nil {
		t.Fatal(err)
	}
	got, err := all(count)
	if err != nil || len(got) != 1000 || !slices.IsSorted(got) {
		t.Errorf("Count: %v, %v", got, err)
	}
	running, err := c.Running(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := exchange(running, 100); err != nil {
		t.Errorf("Running: %v", err)
	}
}

func all(s grpc.ServerStreamingClient[number]) (got []int64, err error) {
	for {
		n, err := s.Recv()
		if err == io.EOF {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		got = append(got, n.Value)
	}
}

// exchange sends the numbers to n, each after the answer to the one before, and ends the call.
func exchange(s grpc.BidiStreamingClient[number, number], n int) error {
	sum := int64(0)
	for i := range n {
		if err := add(s, int64(i), &sum); err != nil {
			return err
		}
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	if _, err := s.Recv(); err != io.EOF {
		return fmt.Errorf("the call ends with %w", err)
	}
	return nil
}

func add(s grpc.BidiStreamingClient[number, number], n int64, sum *int64) error {
	*sum += n
	if err := s.Send(wrapperspb.Int64(n)); err != nil {
		return err
	}
	got, err := s.Recv()
	if err != nil {
		return err
	}
	if got.Value != *sum {
		return fmt.Errorf("got %d, want %d", got.Value, *sum)
	}
	return nil
}

// ends is an interceptor that reports with what error each stream's context has ended.
func ends() (grpc.ServerOption, <-chan error) {
	ended := make(chan error, 10)
	return grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo,
		h grpc.StreamHandler,
	) error {
		err := h(srv, s)
		<-s.Context().Done()
		ended <- s.Context().Err()
		return err
	}), ended
}

// A call's deadline ends it at both ends, and so does its cancellation.
func TestDeadlineAndCancellation(t *testing.T) {
	o, ended := ends()
	c := sums.NewSumsClient(connect(t, start(t, o)))
	ctx, cancel := context.WithCancel(patience(t))
	s, err := c.Count(ctx, wrapperspb.Int64(1<<40))
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if _, err := all(s); status.Code(err) != codes.Canceled {
		t.Errorf("a cancelled call ends with %v", err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("its context at the server has ended with %v", err)
	}

	// A deadline that has nearly passed when the call begins may end it before the server knows.
	for timeout := exampletest.Patience / 1000; ; timeout *= 2 {
		ctx, cancel := context.WithTimeout(patience(t), timeout)
		defer cancel()
		s, err := c.Count(ctx, wrapperspb.Int64(1<<40))
		if err != nil {
			continue
		}
		got, err := all(s)
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a call past its deadline ends with %v", err)
		}
		if len(got) == 0 {
			continue
		}
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			t.Errorf("its context at the server has ended with %v", err)
		}
		return
	}
}

// A client that does not read holds its own call, and no other on its connection.
func TestSlowReader(t *testing.T) {
	c, ctx := sums.NewSumsClient(connect(t, start(t))), patience(t)
	slow, err := c.Count(ctx, wrapperspb.Int64(30_000))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if n, err := c.Double(ctx, wrapperspb.Int64(int64(i))); err != nil || n.Value != int64(2*i) {
			t.Fatalf("beside it: %v, %v", n, err)
		}
	}
	if got, err := all(slow); err != nil || len(got) != 30_000 {
		t.Errorf("%d numbers, %v", len(got), err)
	}
}

// Calls that are open at the same time, on few connections.
func TestConcurrentCalls(t *testing.T) {
	calls := soak.Size(t, 500, 10_000)
	conns := 1 + calls/maxStreams
	addr, ctx := start(t), patience(t)
	var all, open sync.WaitGroup
	open.Add(calls)
	failed := make(chan error, calls)
	for i := range conns {
		c := sums.NewSumsClient(connect(t, addr))
		for range calls*(i+1)/conns - calls*i/conns {
			all.Go(func() {
				if err := together(ctx, c, &open); err != nil {
					failed <- err
				}
			})
		}
	}
	all.Wait()
	close(failed)
	for err := range failed {
		t.Fatalf("of %d calls %d have failed: %v", calls, len(failed)+1, err)
	}
}

// together makes a call that ends when all others have had an answer.
func together(ctx context.Context, c sums.SumsClient, open *sync.WaitGroup) error {
	s, err := c.Running(ctx)
	sum := int64(0)
	if err == nil {
		err = add(s, 1, &sum)
	}
	open.Done()
	if err != nil {
		return err
	}
	open.Wait()
	if err := add(s, 2, &sum); err != nil {
		return err
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	if _, err = s.Recv(); err != io.EOF {
		return fmt.Errorf("the call ends with %w", err)
	}
	return nil
}

// A client without a user agent sends a value that ends with a space.
func TestNoUserAgent(t *testing.T) {
	c := sums.NewSumsClient(connect(t, start(t), grpc.WithUserAgent("")))
	if n, err := c.Double(patience(t), wrapperspb.Int64(21)); err != nil || n.Value != 42 {
		t.Errorf("got %v, %v", n, err)
	}
}

// Calls that are cancelled leave their places to others at once, however many are.
func TestCancelledCalls(t *testing.T) {
	addr := start(t)
	c := sums.NewSumsClient(connect(t, addr))
	var all sync.WaitGroup
	for i := range maxStreams {
		all.Go(func() {
			for j := range 5 {
				ctx, cancel := context.WithCancel(patience(t))
				s, err := c.Running(ctx)
				sum := int64(0)
				if err == nil {
					err = add(s, int64(i), &sum)
				}
				if cancel(); err != nil {
					t.Errorf("call %d of %d: %v", j, i, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// Other requests go to other handlers, in any version of HTTP.
func TestOtherRequests(t *testing.T) {
	addr := start(t)
	resp, err := exampletest.Client(t).Get("http://" + addr + "/")
	if got := exampletest.Body(t, resp, err); !strings.Contains(got, "myriad.sums.Sums") {
		t.Errorf("got %q", got)
	}
	resp, err = exampletest.Client(t).Get("http://" + addr + "/other")
	if exampletest.Body(t, resp, err); resp.StatusCode != http.StatusNotFound {
		t.Errorf("got %s", resp.Status)
	}
}
