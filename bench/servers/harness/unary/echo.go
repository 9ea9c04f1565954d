// Package unary is the service of the servers of gRPC: one method, which sends its message back.
package unary

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// echo is the type of the service's implementation.
type echo interface {
	say(*wrapperspb.StringValue) *wrapperspb.StringValue
}

type implementation struct{}

func (implementation) say(m *wrapperspb.StringValue) *wrapperspb.StringValue { return m }

var service = grpc.ServiceDesc{
	ServiceName: "bench.Echo",
	HandlerType: (*echo)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Say",
		Handler: func(srv any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			m := new(wrapperspb.StringValue)
			if err := decode(m); err != nil {
				return nil, err
			}
			return srv.(echo).say(m), nil
		},
	}},
}

// Server is a server of grpc-go that has the service.
func Server() *grpc.Server {
	s := grpc.NewServer()
	s.RegisterService(&service, implementation{})
	return s
}
