package main

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/myriad-go/myriad/examples/grpc/sums"
)

// A calculator is the service.
type calculator struct{ sums.UnimplementedSumsServer }

type number = wrapperspb.Int64Value

func (calculator) Double(_ context.Context, n *number) (*number, error) {
	if n.Value < 0 {
		return nil, status.Errorf(codes.InvalidArgument, "%d is negative", n.Value)
	}
	return wrapperspb.Int64(2 * n.Value), nil
}

func (calculator) Total(s grpc.ClientStreamingServer[number, number]) error {
	total := int64(0)
	for {
		switch n, err := s.Recv(); err {
		case nil:
			total += n.Value
		case io.EOF:
			return s.SendAndClose(wrapperspb.Int64(total))
		default:
			return err
		}
	}
}

// Count ends early when the client has cancelled the call, or its deadline has passed.
func (calculator) Count(n *number, s grpc.ServerStreamingServer[number]) error {
	for i := range n.Value {
		if err := s.Send(wrapperspb.Int64(i)); err != nil {
			return err
		}
	}
	return nil
}

func (calculator) Running(s grpc.BidiStreamingServer[number, number]) error {
	total := int64(0)
	for {
		switch n, err := s.Recv(); err {
		case nil:
			total += n.Value
			if err := s.Send(wrapperspb.Int64(total)); err != nil {
				return err
			}
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}
