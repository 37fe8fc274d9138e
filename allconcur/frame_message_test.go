package allconcur

import (
	"bytes"
	"testing"
)

// TestFrameMessage: the payload of a message can be read before an engine takes the frame. Other
// frames and bytes that are no frame have none, however long they say that they are.
func TestFrameMessage(t *testing.T) {
	t.Parallel()
	for _, kind := range []frameKind{kindUnreliable, kindReliable} {
		frame := encodeMessage(kind, 7, 3, 9, 2, []byte("payload"), revocation{1, 4})
		id, payload, is := FrameMessage(frame)
		if want := (MessageID{Generation: 7, Epoch: 3, Round: 9, Origin: 2}); !is || id != want ||
			string(payload) != "payload" {
			t.Errorf("kind %d: %+v, %q, %v", kind, id, payload, is)
		}
		for size := range frame {
			_, payload, is := FrameMessage(frame[:size])
			if is && !bytes.HasPrefix([]byte("payload"), payload) {
				t.Errorf("%d bytes have the payload %q", size, payload)
			}
		}
		for other := range 256 {
			changed := bytes.Clone(frame)
			changed[1] = byte(other)
			message := other == int(kindUnreliable) || other == int(kindReliable)
			if _, _, is := FrameMessage(changed); is != message {
				t.Errorf("kind %d: message %v", other, is)
			}
		}
		if _, payload, is := FrameMessage(encodeMessage(kind, 7, 3, 9, 2, nil)); !is ||
			len(payload) > 0 {
			t.Errorf("an empty message of kind %d: %q, %v", kind, payload, is)
		}
		many := bytes.Clone(frame)
		many[2], many[3] = 255, 255 // revocations
		if _, _, is := FrameMessage(many); is {
			t.Error("65,535 revocations fit into a short frame")
		}
	}
}
