package api

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/node/api/intake"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// readMessage reads a message of a stream as package connect does.
func readMessage(body io.Reader) ([]byte, error) {
	var prefix [prefixBytes]byte
	if _, err := io.ReadFull(body, prefix[:]); err != nil {
		return nil, err
	}
	message := new(bytes.Buffer)
	_, err := io.CopyN(message, body, int64(binary.BigEndian.Uint32(prefix[1:])))
	return message.Bytes(), err
}

// FuzzStreamedBody reads any bytes as a stream. What passes is what was sent, each message within
// the bounds. One for which there is no memory is left out, with its number.
func FuzzStreamedBody(f *testing.F) {
	sent := func(numbers ...uint64) (all []byte) {
		for _, number := range numbers {
			message, err := proto.Marshal(&ledgerdv1.SubmitStreamRequest{Number: number,
				Bundle: make([]byte, number%5_000)})
			if err != nil {
				f.Fatal(err)
			}
			all = binary.BigEndian.AppendUint32(append(all, 0), uint32(len(message)))
			all = append(all, message...)
		}
		return all
	}
	f.Add([]byte(nil), uint32(1<<20), false)
	f.Add(sent(1, 0, 300, 1<<63), uint32(1<<20), true)
	f.Add(sent(1, 4_000, 2, 4_999, 1<<40+3), uint32(66<<10), false)
	f.Add(sent(0, 0, 0), uint32(0), true)
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff, 1}, uint32(1<<20), false)
	f.Fuzz(func(t *testing.T, data []byte, memory uint32, single bool) {
		limits := intake.Limits{Bytes: 8_000, Growth: 4, Memory: 32_000}
		budget := intake.NewBudget(int64(memory))
		var arrives io.Reader = bytes.NewReader(data)
		if single {
			arrives = iotest.OneByteReader(arrives)
		}
		body := &streamedBody{ReadCloser: io.NopCloser(arrives), limits: limits,
			open: func() *intake.Reservation { return budget.Open("") }}
		for left := data; ; {
			message, err := readMessage(body)
			var want []byte
			if len(left) >= prefixBytes {
				length := min(uint64(len(left)),
					prefixBytes+uint64(binary.BigEndian.Uint32(left[1:])))
				want, left = left[prefixBytes:length], left[length:]
			}
			if err == nil {
				reservation := body.accept()
				if !bytes.Equal(message, want) || len(message) > limits.Bytes {
					t.Fatalf("read %x, sent %x", message, want)
				}
				if reservation != nil {
					if used := budget.Used(); used < int64(limits.Growth*len(message)) {
						t.Fatalf("%d bytes are reserved for a message of %d", used, len(message))
					}
					reservation.Close()
				} else if len(message) > 0 {
					t.Fatalf("no memory is reserved for %x", message)
				}
			} else if number, poor := body.refused(); poor {
				request := new(ledgerdv1.SubmitStreamRequest)
				if proto.Unmarshal(want, request) == nil && canonical(request, want) &&
					number != request.GetNumber() {
					t.Fatalf("the number of %x is %d, not %d", want, request.GetNumber(), number)
				}
			} else if coded := (*connect.Error)(nil); errors.As(err, &coded) &&
				coded.Code() != connect.CodeResourceExhausted {
				t.Fatal(err)
			} else {
				break
			}
			if used := budget.Used(); used != 0 {
				t.Fatalf("%d bytes stay reserved", used)
			}
		}
		body.release()
		if used := budget.Used(); used != 0 {
			t.Fatalf("%d bytes stay reserved at the end", used)
		}
	})
}

// canonical reports whether a request was encoded as all common encoders do.
func canonical(request *ledgerdv1.SubmitStreamRequest, encoded []byte) bool {
	again, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	return err == nil && bytes.Equal(again, encoded)
}
