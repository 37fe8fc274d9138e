package streams

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// A ring with data that no writer writes is removed, and nothing else happens. The next life of
// that member gets another ring. The ask is sent three times and gets one ring.
func TestBrokenRing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	w := newWorld(t, 1, 1)
	carrier := w.start("1/0", 1).streams
	w.extend(10, 10)
	rogue, err := w.network.Host("0/0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := wire.NewDatagrams(rogue, nil)
	if err != nil {
		t.Fatal(err)
	}
	offers := make(chan message, 64)
	if err := c.Register(wire.KindStream, func(_ rdmanet.Peer, payload []byte) {
		if m, err := decode(payload); err == nil && m.kind == messageOffer {
			offers <- m
		}
	}); err != nil {
		t.Fatal(err)
	}
	ask := message{kind: messageAsk, child: childShard, attempt: 7}
	var offer message
	for i := range 3 {
		if err := c.Send("1/0", wire.KindStream, ask.encode(nil)); err != nil {
			t.Fatal(err)
		}
		select {
		case m := <-offers:
			if i > 0 && m != offer {
				t.Fatalf("offered %+v, then %+v", offer, m)
			}
			offer = m
		case <-ctx.Done():
			t.Fatal("no offer")
		}
	}
	attachment, err := rogue.Attach(ctx, "1/0", offer.region)
	if err != nil {
		t.Fatal(err)
	}
	queue, err := rogue.Queue(16)
	if err != nil {
		t.Fatal(err)
	}
	for end := error(nil); !errors.Is(end, rdmanet.ErrAccess); {
		if err := queue.Post(rdmanet.Operation{To: attachment, Kind: rdmanet.OperationWrite,
			Bytes: []byte{1, 2, 3, 4, 5, 6, 7, 8}, Ring: true}); err != nil {
			t.Fatal(err)
		}
		var done [1]rdmanet.Completion
		if _, err := queue.Wait(ctx, done[:]); err != nil {
			t.Fatal("the ring is not taken away")
		}
		end = done[0].Err
	}
	if err := eventually(10*time.Second, func() (bool, error) {
		return carrier.Status().Incoming.Rings == 0, nil
	}, func() string { return "the carrier keeps the ring" }); err != nil {
		t.Fatal(err)
	}
	w.network.Kill("0/0")
	w.start("0/0", 1)
	w.mustArrive()
}
