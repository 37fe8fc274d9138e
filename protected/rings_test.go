package protected

import (
	"bytes"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestRings: slots hold the largest message, do not overlap, and end at words.
func TestRings(t *testing.T) {
	t.Parallel()
	for _, messageMax := range []int{0, 1, 8, 13, 100} {
		ring := BufferRing(5, messageMax)
		if ring.Slot < messageMax+bufferTrailer || ring.Slot%Word != 0 || ring.Size()%Word != 0 {
			t.Errorf("slots of %d bytes for messages of %d", ring.Slot, messageMax)
		}
		for number := uint64(1); number <= 20; number++ {
			end := ring.End(number)
			if end != RingHeader+(int(number-1)%ring.Slots+1)*ring.Slot || end > ring.Size() ||
				end != ring.End(number+uint64(ring.Slots)) {
				t.Errorf("number %d ends at %d of %d", number, end, ring.Size())
			}
		}
	}
}

// TestBuffersReadAsWritten writes messages of any length over a fabric in both ways, around the
// ring. A number is found once all of its message is there, and no other number is found.
func TestBuffersReadAsWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const slots, messageMax = 3, 200
		ring := BufferRing(slots, messageMax)
		p := newPair(t, rapid.Uint64().Draw(t, "seed"), 1, 8)
		defer p.network.Close()
		buffer := Buffer{Held: Held{Region: p.regions[0]}, Ring: ring}
		p.ways.Attach(p.to[0])
		p.attach(t)
		box := NewOutbox(ring)
		lent := 0
		for number := uint64(1); number <= 8; number++ {
			message := rapid.SliceOfN(rapid.Byte(), 0, messageMax).Draw(t, "message")
			if rapid.Bool().Draw(t, "from an outbox") {
				copy(box.Put(number, len(message))[:len(message)], message)
				box.Post(p.ways, p.to[0], 1, number)
				if long := BufferEntry(len(message)) > 128; box.Lent(number) != long {
					t.Fatalf("a message of %d bytes is lent: %v", len(message), !long)
				}
			} else {
				p.ways.PostMessage(p.to[0], ring, 1, 2, number, message, &lent)
			}
			if err := p.ways.Flush(); err != nil {
				t.Fatal(err)
			}
			for p.ways.Outstanding() > 0 {
				p.network.Step()
				if buffer.Found(number) && !bytes.Equal(buffer.Message(number, messageMax),
					message) {
					t.Fatalf("message %d is found as %x, want %x", number,
						buffer.Message(number, messageMax), message)
				}
				p.complete()
			}
			if !buffer.Found(number) || buffer.Found(number+1) || box.Lent(number) || lent != 0 {
				t.Fatalf("message %d is not there, or the next one is, or its bytes are lent",
					number)
			}
		}
	})
}

// TestNobodysLength finds a message with a length that no message has. It is an empty one.
func TestNobodysLength(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, 1, 8)
	defer p.network.Close()
	buffer := Buffer{Held: Held{Region: p.regions[0]}, Ring: BufferRing(3, 40)}
	buffer.Fill(2, make([]byte, 40))
	if got := buffer.Message(2, 40); !buffer.Found(2) || len(got) != 40 {
		t.Errorf("%d bytes", len(got))
	}
	buffer.Region.Store(buffer.Ring.End(2)+bufferLength, 1<<40)
	if got := buffer.Message(2, 40); len(got) != 0 {
		t.Errorf("%d bytes", len(got))
	}
	buffer.Take(2)
	if got := buffer.Region.Load(HeadTaken); got != 2 {
		t.Errorf("taken are %d", got)
	}
}

// TestOutboxIsCopied copies an outbox while a write is under way. The copy's counter follows its
// own completion.
func TestOutboxIsCopied(t *testing.T) {
	t.Parallel()
	box := NewOutbox(BufferRing(2, 8))
	copy(box.Put(1, 3)[:3], "one")
	box.lent[1] = 1
	other := box.Copy()
	if box.SameCount(&box.lent[1], other) != &other.lent[1] ||
		box.SameCount(new(int), other) != nil {
		t.Error("a counter of the copy is not found, or one of nothing is")
	}
	copy(other.Put(1, 3)[:3], "two")
	before, after := Facts{Now: time.Second}, Facts{Now: time.Second}
	before.Outbox(box, 1, 1)
	after.Outbox(other, 1, 1)
	if bytes.Equal(before.B, after.B) || !bytes.Contains(box.Slot(1), []byte("one")) {
		t.Error("a copy shares its slots")
	}
}
