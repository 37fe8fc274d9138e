package fabrictest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// checkKilledPeer: senders to a peer that crashes get ErrUnreachable within the mend timeout, and
// the events report it.
func checkKilledPeer(ctx context.Context, f Fabric) error {
	in := newInbox()
	from, to, lane, err := connectedPair(ctx, f, in)
	if err != nil {
		return err
	}
	heard := watchEvents(from)
	if err := send(ctx, lane, 0, 100, 64); err != nil {
		return err
	}
	if err := in.waitCount(ctx, peerOf(from), 100); err != nil {
		return err
	}
	victim := peerOf(to)
	f.Kill(1)
	err = within(ctx, mendShort+mendSlack, "Send to a dead peer", func(ctx context.Context) error {
		_, err := sendUntilError(ctx, lane, 100)
		return err
	})
	if err := want("Send to a dead peer", err, rdmanet.ErrUnreachable); err != nil {
		return err
	}
	_, err = lane.TrySend(nil)
	if err := want("TrySend on a broken lane", err, rdmanet.ErrUnreachable); err != nil {
		return err
	}
	if err := want("Flushed on a broken lane", lane.Flushed(ctx),
		rdmanet.ErrUnreachable); err != nil {
		return err
	}
	event, err := heard.wait(ctx, rdmanet.PeerUnreachable)
	if err != nil {
		return err
	}
	if event.Peer != victim || event.Lane != "test" || event.Cause == nil {
		return fmt.Errorf("the event is %v instead of one of lane test to %s, with a cause",
			event, victim)
	}
	_, err = heard.wait(ctx, rdmanet.PeerDisconnected)
	return err
}

// checkKilledReceiver: a Send that waits for a receiver's window ends when the receiver crashes in
// its receive function.
func checkKilledReceiver(ctx context.Context, f Fabric) error {
	in := newGatedInbox()
	defer close(in.gate)
	from, _, lane, err := pair(f, in)
	if err != nil {
		return err
	}
	blocked, err := sendUntilBlocked(ctx, from, lane, in)
	if err != nil {
		return err
	}
	f.Kill(1)
	err = within(ctx, mendShort+mendSlack, "a blocked Send to a dead peer",
		func(ctx context.Context) error {
			select {
			case err := <-blocked:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	return want("a blocked Send to a dead peer", err, rdmanet.ErrUnreachable)
}

// checkAbsentPeer: a lane to a peer that never starts accepts a window of frames, then breaks. Once
// the peer is there, a new lane works, and its receiver is told of the lost frames.
func checkAbsentPeer(ctx context.Context, f Fabric) error {
	from, err := f.Start(0)
	if err != nil {
		return err
	}
	lane, err := from.Lane(f.ID(1), "test")
	if err != nil {
		return err
	}
	var accepted uint64
	err = within(ctx, mendShort+mendSlack, "Send to an absent peer",
		func(ctx context.Context) (err error) {
			accepted, err = sendUntilError(ctx, lane, 0)
			return err
		})
	if err := want("Send to an absent peer", err, rdmanet.ErrUnreachable); err != nil {
		return err
	}
	if accepted != 16 {
		return fmt.Errorf("%d frames were accepted, the window holds 16", accepted)
	}
	in := newInbox()
	if _, err := startReceiver(f, 1, in); err != nil {
		return err
	}
	return sendFresh(ctx, f, from, in)
}

// checkSilentPeer: a peer is also found unreachable if the link drops everything without breaking
// the connection.
func checkSilentPeer(ctx context.Context, f Fabric) error {
	in := newInbox()
	from, _, lane, err := connectedPair(ctx, f, in)
	if err != nil {
		return err
	}
	if err := send(ctx, lane, 0, 10, 64); err != nil {
		return err
	}
	if err := in.waitCount(ctx, peerOf(from), 10); err != nil {
		return err
	}
	f.Cut(0, 1)
	err = within(ctx, mendShort+mendSlack, "Send to a silent peer",
		func(ctx context.Context) error {
			_, err := sendUntilError(ctx, lane, 10)
			return err
		})
	return want("Send to a silent peer", err, rdmanet.ErrUnreachable)
}

// checkSevered: connections that break repeatedly during traffic lose, repeat and reorder nothing.
func checkSevered(ctx context.Context, f Fabric) error {
	// Each break waits for some progress. This bounds their number on a machine that reconnects
	// slowly.
	const breaksMax = 60
	count := volume(f, 10_000)
	in, back := newInbox(), newInbox()
	from, to, lane, err := pair(f, in)
	if err != nil {
		return err
	}
	if err := from.Receive("test", back.receive); err != nil {
		return err
	}
	backLane, err := to.Lane(f.ID(0), "test")
	if err != nil {
		return err
	}
	over := make(chan struct{})
	sender := func(lane rdmanet.Lane) func() error {
		return func() error {
			for i := uint64(0); i < uint64(count); i += 50 {
				if err := send(ctx, lane, i, i+50, 64, 3_000, 20); err != nil {
					return err
				}
				// Leave some traffic for the next break.
				if err := pause(ctx, time.Millisecond); err != nil {
					return err
				}
			}
			return lane.Flushed(ctx)
		}
	}
	severed := make(chan struct{})
	go func() {
		defer close(severed)
		arrived := 0
		for i := 0; ; {
			select {
			case <-over:
				return
			case <-time.After(5 * time.Millisecond):
			}
			if now := in.count() + back.count(); now >= arrived+2*count/breaksMax {
				f.Sever(i%2, 1-i%2)
				arrived, i = now, i+1
			}
		}
	}()
	err = together(sender(lane), sender(backLane))
	close(over)
	<-severed
	return errors.Join(err,
		in.waitCount(ctx, peerOf(from), count), back.waitCount(ctx, peerOf(to), count),
		in.quiet(ctx, count), back.quiet(ctx, count))
}

// checkSeveredReceiver: a connection that breaks while the receive function runs neither repeats
// nor skips its frames.
func checkSeveredReceiver(ctx context.Context, f Fabric) error {
	in := newGatedInbox()
	from, _, lane, err := pair(f, in)
	if err != nil {
		close(in.gate)
		return err
	}
	if err := send(ctx, lane, 0, 300, 64); err != nil {
		close(in.gate)
		return err
	}
	select {
	case <-in.entered:
	case <-ctx.Done():
		close(in.gate)
		return errors.New("nothing arrives")
	}
	for range 3 {
		f.Sever(0, 1)
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			close(in.gate)
			return err
		}
	}
	close(in.gate)
	if err := send(ctx, lane, 300, 600, 64); err != nil {
		return err
	}
	if err := lane.Flushed(ctx); err != nil {
		return err
	}
	return errors.Join(in.waitCount(ctx, peerOf(from), 600), in.quiet(ctx, 600))
}

// checkHealing: a partition shorter than the mend timeout only delays frames.
func checkHealing(ctx context.Context, f Fabric) error {
	in := newInbox()
	from, _, lane, err := connectedPair(ctx, f, in)
	if err != nil {
		return err
	}
	for i := range uint64(2) {
		if err := send(ctx, lane, i*500, i*500+250, 64); err != nil {
			return err
		}
		if err := in.waitCount(ctx, peerOf(from), int(i)*500+250); err != nil {
			return err
		}
		f.Cut(0, 1)
		if err := send(ctx, lane, i*500+250, i*500+500, 64); err != nil {
			return err
		}
		if err := pause(ctx, 300*time.Millisecond); err != nil {
			return err
		}
		f.Mend(0, 1)
		if err := in.waitCount(ctx, peerOf(from), int(i)*500+500); err != nil {
			return err
		}
	}
	return lane.Flushed(ctx)
}

// checkReopened: a lane that broke in a partition can be opened again afterwards, to the same
// incarnation, and the gap is reported.
func checkReopened(ctx context.Context, f Fabric) error {
	in := newInbox()
	from, _, lane, err := connectedPair(ctx, f, in)
	if err != nil {
		return err
	}
	if err := send(ctx, lane, 0, 10, 64); err != nil {
		return err
	}
	if err := in.waitCount(ctx, peerOf(from), 10); err != nil {
		return err
	}
	f.Cut(0, 1)
	err = within(ctx, mendShort+mendSlack, "Send into a partition",
		func(ctx context.Context) error {
			_, err := sendUntilError(ctx, lane, 10)
			return err
		})
	if err := want("Send into a partition", err, rdmanet.ErrUnreachable); err != nil {
		return err
	}
	f.Mend(0, 1)
	return sendFresh(ctx, f, from, in)
}

// sendFresh opens lanes until one reaches member 1, after an earlier lane lost frames. It checks
// that the receiver was told of the loss before the first frame.
func sendFresh(ctx context.Context, f Fabric, from rdmanet.Host, in *inbox) error {
	const count, start = 50, uint64(1) << 40
	for {
		lane, err := from.Lane(f.ID(1), "test")
		if err != nil {
			return err
		}
		if err = send(ctx, lane, start, start+count, 64); err == nil {
			err = lane.Flushed(ctx)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, rdmanet.ErrUnreachable) {
			return fmt.Errorf("a fresh lane: %w", err)
		}
	}
	got, err := in.wait(ctx, "the fresh lane's frames and an event", func(a []arrival) bool {
		return len(a) > count
	})
	if err != nil {
		return err
	}
	fresh := got[len(got)-count-1:]
	if !fresh[0].lost {
		return errors.New("frames were given up, and the receiver was not told before the fresh " +
			"lane's first frame")
	}
	for i, a := range fresh[1:] {
		if a.lost {
			return errors.New("the receiver was told twice of frames given up")
		}
		if err := checkFrame(a.frame, start+uint64(i)); err != nil {
			return err
		}
	}
	return nil
}

// checkReceiverRestarts: the lane to a peer that restarts breaks with ErrReset, even if the peer is
// back at once. A new lane leads to the new incarnation and carries no frames of the old lane.
func checkReceiverRestarts(ctx context.Context, f Fabric) error {
	in := newInbox()
	from, to, lane, err := pair(f, in)
	if err != nil {
		return err
	}
	heard := watchEvents(from)
	if err := send(ctx, lane, 0, 100, 64); err != nil {
		return err
	}
	if err := in.waitCount(ctx, peerOf(from), 100); err != nil {
		return err
	}
	f.Kill(1)
	again := newInbox()
	restarted, err := startReceiver(f, 1, again)
	if err != nil {
		return err
	}
	if restarted.Incarnation() <= to.Incarnation() {
		return fmt.Errorf("incarnation %s came after %s", restarted.Incarnation(), to.Incarnation())
	}
	err = within(ctx, 10*time.Second, "Send to a restarted peer", func(ctx context.Context) error {
		_, err := sendUntilError(ctx, lane, 100)
		return err
	})
	if err := want("Send to a restarted peer", err, rdmanet.ErrReset); err != nil {
		return err
	}
	event, err := heard.wait(ctx, rdmanet.PeerRestarted)
	if err != nil {
		return err
	}
	if event.Peer != peerOf(restarted) {
		return fmt.Errorf("the event is of %s instead of %s", event.Peer, peerOf(restarted))
	}
	fresh, err := from.Lane(f.ID(1), "test")
	if err != nil {
		return err
	}
	if fresh == lane {
		return errors.New("a second call of Lane gives the broken lane again")
	}
	if err := send(ctx, fresh, 0, 100, 64); err != nil {
		return err
	}
	if err := again.waitCount(ctx, peerOf(from), 100); err != nil {
		return fmt.Errorf("the new incarnation: %w", err)
	}
	return again.quiet(ctx, 100)
}

// checkSenderRestarts: the frames of a restarted peer come from another Peer, after an event, and
// no frame of the old incarnation comes after them.
func checkSenderRestarts(ctx context.Context, f Fabric) error {
	in := newInbox()
	from, to, lane, err := pair(f, in)
	if err != nil {
		return err
	}
	heard := watchEvents(to)
	if err := send(ctx, lane, 0, 200, 64); err != nil {
		return err
	}
	if _, err := in.wait(ctx, "a frame", func(a []arrival) bool { return len(a) > 0 }); err != nil {
		return err
	}
	f.Kill(0)
	restarted, err := f.Start(0)
	if err != nil {
		return err
	}
	fresh, err := restarted.Lane(f.ID(1), "test")
	if err != nil {
		return err
	}
	if err := send(ctx, fresh, 0, 100, 64); err != nil {
		return err
	}
	if err := fresh.Flushed(ctx); err != nil {
		return err
	}
	if event, err := heard.wait(ctx, rdmanet.PeerRestarted); err != nil ||
		event.Peer != peerOf(restarted) {
		return fmt.Errorf("the event is of %s instead of %s, error %v", event.Peer,
			peerOf(restarted), err)
	}
	got, err := in.wait(ctx, "frames", func(a []arrival) bool {
		return len(a) > 0 && a[len(a)-1].from == peerOf(restarted)
	})
	if err != nil {
		return err
	}
	next := map[rdmanet.Peer]uint64{}
	for i, a := range got {
		switch {
		case a.lost:
			return errors.New("frames of a fresh incarnation were told as given up")
		case a.from != peerOf(from) && a.from != peerOf(restarted):
			return fmt.Errorf("frame %d comes from %s", i, a.from)
		case a.from == peerOf(from) && next[peerOf(restarted)] > 0:
			return fmt.Errorf("frame %d of the old incarnation came after one of the new", i)
		}
		if err := checkFrame(a.frame, next[a.from]); err != nil {
			return fmt.Errorf("from %s: %w", a.from, err)
		}
		next[a.from]++
	}
	if next[peerOf(restarted)] != 100 {
		return fmt.Errorf("%d frames of the new incarnation arrived, 100 were sent",
			next[peerOf(restarted)])
	}
	return nil
}
