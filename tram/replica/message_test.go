package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/tram"
)

// drawMessage draws any message that can be multicast.
func drawMessage(t *rapid.T) order.Multicast {
	to := rapid.SliceOfNDistinct(rapid.Uint32(), 1, 9, rapid.ID[uint32]).Draw(t, "to")
	slices.Sort(to)
	m := order.Multicast{
		ID: order.MessageID{Sender: order.Replica{
			Group:  order.GroupID(rapid.Uint32().Draw(t, "group")),
			Server: order.ServerID(rapid.Uint32().Draw(t, "server"))},
			Sequence: rapid.Uint64().Draw(t, "sequence")},
		Payload: rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "payload"),
	}
	for _, group := range to {
		m.To = append(m.To, order.GroupID(group))
	}
	return m
}

func TestMessagesReadAsWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawMessage(t)
		b := AppendMessage(nil, m)
		if len(b) != messageSize(m) {
			t.Fatalf("%d bytes, said to be %d", len(b), messageSize(m))
		}
		got, err := DecodeMessage(b)
		if err != nil || got.ID != m.ID || !slices.Equal(got.To, m.To) ||
			!bytes.Equal(got.Payload, m.Payload) {
			t.Fatalf("%+v became %+v, %v", m, got, err)
		}
		for cut := range messageHeader + 4*len(m.To) {
			if _, err := DecodeMessage(b[:cut]); !errors.Is(err, ErrMessage) {
				t.Fatalf("the first %d bytes pass: %v", cut, err)
			}
		}
	})
}

func FuzzDecodeMessage(f *testing.F) {
	f.Add([]byte{})
	f.Add(AppendMessage(nil, order.Multicast{ID: order.MessageID{Sequence: 7},
		To: []order.GroupID{0, 3}, Payload: []byte("payload")}))
	f.Add(AppendMessage(nil, order.Multicast{To: []order.GroupID{3, 3}}))
	f.Add(binary.LittleEndian.AppendUint32(make([]byte, 16), 1<<31))
	tree := tram.Binary(5)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeMessage(b)
		if err != nil {
			if !errors.Is(err, ErrMessage) {
				t.Fatal(err)
			}
		} else if again := AppendMessage(nil, m); !bytes.Equal(again, b) {
			t.Fatalf("%x reads as %x", b, again)
		}
		// A replica's reading of it agrees.
		destinations, _, err := splitMessage(b)
		if err != nil {
			return
		}
		c := courses{tree: tree, self: 1, sets: map[string]*course{}}
		course := c.of(destinations)
		if again := c.of(destinations); again != course {
			t.Fatal("it is not remembered")
		}
		decoded, err := DecodeMessage(b)
		fits := err == nil && tree.CheckDestinations(decoded.To) == nil
		if !fits && (course.here || course.entered || len(course.children) > 0) {
			t.Fatalf("%v, which is nobody's, has the course %+v", b, course)
		}
		if fits && (course.here != slices.Contains(decoded.To, 1) ||
			len(course.children) != len(tree.Route(1, decoded.To)) ||
			course.entered != (tree.LCA(decoded.To) == 1)) {
			t.Fatalf("%v has the course %+v", decoded.To, course)
		}
	})
}
