package intake

import (
	"errors"
	"fmt"
	"io"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Codecs returns the handler's options that decode requests within the table's limits only.
func (t *Table) Codecs() connect.HandlerOption {
	options := []connect.HandlerOption{
		connect.WithCodec(&codec{name: "proto", check: t.CheckWire,
			unmarshal: unmarshal, marshal: proto.MarshalOptions{}.MarshalAppend}),
		connect.WithConditionalHandlerOptions(func(spec connect.Spec) []connect.HandlerOption {
			return []connect.HandlerOption{
				connect.WithReadMaxBytes(t.Of(MethodOf(spec.Procedure)).Bytes)}
		}),
	}
	for _, name := range []string{"json", "json; charset=utf-8"} {
		options = append(options, connect.WithCodec(&codec{name: name, check: t.CheckJSON,
			// A field that this version does not know is refused and named. People write JSON by
			// hand, and a mistyped limit or note must not be lost in silence. Programs that speak
			// protobuf to older nodes ask first what they know.
			unmarshal: protojson.Unmarshal,
			marshal:   protojson.MarshalOptions{}.MarshalAppend}))
	}
	return connect.WithHandlerOptions(options...)
}

// MethodOf returns the method's name in a procedure's path.
func MethodOf(procedure string) string {
	for at := len(procedure) - 1; at >= 0; at-- {
		if procedure[at] == '/' {
			return procedure[at+1:]
		}
	}
	return procedure
}

// codec checks a request before it decodes it.
type codec struct {
	name      string
	check     func(protoreflect.FullName, []byte) error
	unmarshal func([]byte, proto.Message) error
	marshal   func([]byte, proto.Message) ([]byte, error)
}

func (c *codec) Name() string { return c.name }

func (c *codec) Unmarshal(data []byte, into any) error {
	message, ok := into.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a message", into)
	}
	if c.name != "proto" && len(data) == 0 {
		return errors.New("an empty request is not a JSON object")
	}
	if err := c.check(message.ProtoReflect().Descriptor().FullName(), data); err != nil {
		return err
	}
	return c.unmarshal(data, message)
}

func (c *codec) Marshal(from any) ([]byte, error) { return c.MarshalAppend(nil, from) }

func (c *codec) MarshalAppend(to []byte, from any) ([]byte, error) {
	message, ok := from.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a message", from)
	}
	return c.marshal(to, message)
}

var errCompressed = errors.New("this node takes no compressed requests: send it as it is")

// Compressed refuses to decompress. It stands in for the decompressor of requests.
type Compressed struct{}

// Read implements connect.Decompressor.
func (Compressed) Read([]byte) (int, error) { return 0, errCompressed }

// Close implements connect.Decompressor.
func (Compressed) Close() error { return nil }

// Reset implements connect.Decompressor.
func (Compressed) Reset(io.Reader) error { return errCompressed }
