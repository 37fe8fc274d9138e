package replica

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected/protectedtest"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// TestLentBytesOfClient makes a client's buffer wrap around while a write to one replica is under
// way, whose fellows have taken the message. The client has no room for another one in that slot
// before the write has completed.
func TestLentBytesOfClient(t *testing.T) {
	t.Parallel()
	if err := lentOfClient(t, FaultNone); err != nil {
		t.Fatal(err)
	}
	err := lentOfClient(t, FaultLentReused)
	if !errors.Is(err, errChanged) {
		t.Errorf("the planted bug is not noticed: %v", err)
	}
	t.Logf("planted: %v", err)
}

var errChanged = errors.New("the bytes of a write under way change")

func lentOfClient(t *testing.T, fault Fault) error {
	const slots = 4
	var host *protectedtest.LateHost
	g := newGroupOn(t, 1, 3, Options{PayloadMax: 700, BufferSlots: slots, Fault: fault},
		func(number int, own rdmanet.RegionHost) rdmanet.RegionHost {
			if number < 3 {
				return own
			}
			host = &protectedtest.LateHost{RegionHost: own, Late: "2"}
			return host
		})
	var tick func() // so that there is always a next event
	tick = func() { g.network.After(5*time.Microsecond, tick) }
	tick()
	g.replicas[0].Lead(0)
	client, err := NewClient(g.replicas[0].options, 0, host)
	if err != nil {
		t.Fatal(err)
	}
	sent := uint64(0)
	send := func() error {
		err := client.Multicast(order.Multicast{
			ID: order.MessageID{Sender: order.Replica{Group: order.Clients}, Sequence: sent + 1},
			To: []order.GroupID{0}, Payload: bytes.Repeat([]byte{byte(sent)}, 600)})
		if err == nil {
			sent++
		}
		return err
	}
	poll := func() {
		g.network.Step()
		g.poll()
		client.Poll(g.network.Now())
		attach(host, client)
		for _, r := range g.replicas {
			r.Delivered()
		}
	}
	run := func(what string, until func() bool) error {
		for end := g.network.Now() + 50*time.Millisecond; !until(); {
			if g.network.Now() > end {
				return fmt.Errorf("not so: %s: %v", what, client)
			}
		}
		return nil
	}
	if err := send(); err != nil {
		t.Fatal(err)
	}
	stream := client.streams[0]
	if err := run("a write is under way", func() bool {
		poll()
		host.Held = host.Lends()
		return host.Held
	}); err != nil {
		return err
	}
	before := bytes.Clone(stream.box.Slot(1))
	if err := run("the other messages are taken", func() bool {
		poll()
		for sent < slots && send() == nil {
			continue
		}
		return sent == slots && stream.taken >= 1
	}); err != nil {
		return err
	}
	if err := send(); !errors.Is(err, order.ErrNotNow) {
		if !bytes.Equal(before, stream.box.Slot(1)) {
			return errChanged
		}
		t.Errorf("a message for a slot that is lent: %v", err)
	}
	if !bytes.Equal(before, stream.box.Slot(1)) {
		return errChanged
	}
	host.Held = false
	return run("there is room again", func() bool {
		poll()
		return send() == nil
	})
}
