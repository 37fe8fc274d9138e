//go:build !race

package intake_test

import (
	"bytes"
	"runtime"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A request that passes takes at most what the budget reserved for it.
func TestReservedMemoryIsEnough(t *testing.T) {
	for method, request := range requests() {
		limits := table.Of(method)
		for i := range request.ProtoReflect().Descriptor().Fields().Len() {
			described := request.ProtoReflect().Descriptor().Fields().Get(i)
			if described.Kind() != protoreflect.MessageKind &&
				described.Kind() != protoreflect.BytesKind {
				continue
			}
			for _, content := range [][]byte{nil, []byte("\x0a\x00"), []byte("\x1a\x00"),
				[]byte("\x0a\x01a"), bytes.Repeat([]byte("\x1a\x00"), 12),
				bytes.Repeat([]byte("\x0a\x00\x12\x00"), 16),
				bytes.Repeat([]byte("\x1a\x05\x0a\x01a\x12\x00"), 200)} {
				element := protowire.AppendTag(nil, described.Number(), protowire.BytesType)
				element = protowire.AppendBytes(element, content)
				// The most elements that pass, found by halving.
				low, high := 0, limits.Bytes/len(element)+1
				for low+1 < high {
					if middle := (low + high) / 2; table.CheckWire(nameOf(request),
						bytes.Repeat(element, middle)) == nil {
						low = middle
					} else {
						high = middle
					}
				}
				data := bytes.Repeat(element, low)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_ = proto.Unmarshal(data, request)
				runtime.ReadMemStats(&after)
				took := int(after.TotalAlloc - before.TotalAlloc)
				// A list that grows leaves its earlier copies to the collector.
				if reserved := limits.Growth*len(data) + 32<<10; took > reserved*3/2 {
					t.Errorf("%s: %d times %x take %d bytes, reserved %d", method, low, element,
						took, reserved)
				}
				proto.Reset(request)
			}
		}
	}
}
