package api

import (
	"context"
	"net/http"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"

	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
	"github.com/ledgerd/ledgerd/node/doors"
)

// questionMax bounds a question to the reflection service, in bytes.
const questionMax = 4 << 10

// reflection adds the standard service that describes the API to clients without its description,
// such as grpcurl, in both versions. Every caller that may read anything may ask it.
func (s *Server) reflection(mux *http.ServeMux) {
	reflector := grpcreflect.NewStaticReflector(ledgerdv1connect.LedgerServiceName)
	options := []connect.HandlerOption{connect.WithReadMaxBytes(questionMax),
		connect.WithRecover(s.recovered), connect.WithInterceptors(questions{s.service.limits})}
	for _, handlerOf := range []func(*grpcreflect.Reflector, ...connect.HandlerOption) (string,
		http.Handler){grpcreflect.NewHandlerV1, grpcreflect.NewHandlerV1Alpha} {
		path, handler := handlerOf(reflector, options...)
		mux.Handle(path, withBodyDeadline(handler, s.options.MaxBodyPatience))
	}
}

// questions bounds the streams of the reflection service: their number, as that of all streams, and
// their questions, of which each counts as a call.
type questions struct{ limits *limits }

// WrapUnary implements connect.Interceptor. The service has streams only.
func (questions) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc { return next }

// WrapStreamingClient implements connect.Interceptor.
func (questions) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (q questions) WrapStreamingHandler(
	next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, connection connect.StreamingHandlerConn) error {
		if doors.CallerOf(ctx).Role == doors.RoleNone {
			return connect.NewError(connect.CodeUnauthenticated, doors.ErrUnidentified)
		}
		release, err := q.limits.openStream(connection.Peer().Addr)
		if err != nil {
			return err
		}
		defer release()
		return next(ctx, &questionedConnection{connection, ctx, q.limits})
	}
}

// questionedConnection counts the questions of a stream.
type questionedConnection struct {
	connect.StreamingHandlerConn
	ctx    context.Context
	limits *limits
}

// Receive implements connect.StreamingHandlerConn.
func (c *questionedConnection) Receive(message any) error {
	if err := c.StreamingHandlerConn.Receive(message); err != nil {
		return err
	}
	_, err := c.limits.gate(c.ctx, c.Spec(), c.Peer(), nil)
	return err
}
