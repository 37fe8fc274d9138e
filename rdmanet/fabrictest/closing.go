package fabrictest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// checkCloseDelivers: frames sent before Close arrive, even if the lane was opened just before, and
// the peers are notified.
func checkCloseDelivers(ctx context.Context, f Fabric) error {
	const count = 5_000
	in := newInbox()
	from, to, lane, err := pair(f, in)
	if err != nil {
		return err
	}
	back, err := to.Lane(f.ID(0), "back")
	if err != nil {
		return err
	}
	ready := newInbox()
	if err := from.Receive("back", ready.receive); err != nil {
		return err
	}
	if err := send(ctx, back, 0, 1, 8); err != nil {
		return err
	}
	if err := ready.waitCount(ctx, peerOf(to), 1); err != nil {
		return err
	}
	if err := send(ctx, lane, 0, count, 64, 2_000); err != nil {
		return err
	}
	if err := within(ctx, 20*time.Second, "Close", from.Close); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	if got := in.count(); got != count {
		return fmt.Errorf("after Close %d frames of %d have arrived", got, count)
	}
	if err := in.waitCount(ctx, peerOf(from), count); err != nil {
		return err
	}
	// The mend timeout is long: only a goodbye can explain the error by now.
	err = within(ctx, 10*time.Second, "Send to a closed peer", func(ctx context.Context) error {
		_, err := sendUntilError(ctx, back, 1)
		return err
	})
	return want("Send to a closed peer", err, rdmanet.ErrUnreachable)
}

// checkCloseAcknowledges: before it says goodbye, a closing host acknowledges the frames that its
// program got, including those of a receive call that runs during Close. Senders know exactly which
// frames arrived.
func checkCloseAcknowledges(ctx context.Context, f Fabric) error {
	slow, busy := newGatedInbox(), newInbox()
	from, to, lane, err := pair(f, slow)
	if err != nil {
		return err
	}
	if err := to.Receive("busy", busy.receive); err != nil {
		return err
	}
	busyLane, err := from.Lane(f.ID(1), "busy")
	if err != nil {
		return err
	}
	if err := send(ctx, lane, 0, 1, 64); err != nil {
		return err
	}
	select {
	case <-slow.entered:
	case <-ctx.Done():
		return errors.New("nothing arrives")
	}
	accepted := make(chan uint64, 1)
	broken := make(chan error, 1)
	go func() {
		n, err := sendUntilError(ctx, busyLane, 0)
		accepted <- n
		broken <- err
	}()
	if _, err := busy.wait(ctx, "the busy lane", func(a []arrival) bool {
		return len(a) > 100
	}); err != nil {
		return err
	}
	closed := make(chan error, 1)
	go func() { closed <- to.Close(ctx) }()
	for err == nil { // until it is closing
		if _, err = to.Lane(f.ID(0), "back"); err == nil {
			err = pause(ctx, time.Millisecond)
		}
	}
	if err := want("Lane on a closing host", err, rdmanet.ErrClosed); err != nil {
		return err
	}
	// A host that does not wait for the receive call has said goodbye by now.
	err = pause(ctx, 100*time.Millisecond)
	close(slow.gate)
	if err != nil {
		return err
	}
	if err := <-closed; err != nil {
		return fmt.Errorf("close: %w", err)
	}
	err = within(ctx, 10*time.Second, "Flushed of a frame that arrived as the peer closed",
		lane.Flushed)
	if err != nil {
		return fmt.Errorf("a frame that arrived as the peer closed: %w", err)
	}
	n := <-accepted
	if err := want("Send to a closed peer", <-broken, rdmanet.ErrUnreachable); err != nil {
		return err
	}
	if got, acknowledged := busy.count(), int(n)-busyLane.Pending(); got != acknowledged {
		return fmt.Errorf("%d frames arrived before the peer closed, %d are acknowledged", got,
			acknowledged)
	}
	return nil
}

// checkCloseRefuses: a closed host refuses everything with ErrClosed, and a blocked Send ends with
// it. Close ends with its context although a peer takes no frames. Closing again does nothing.
func checkCloseRefuses(ctx context.Context, f Fabric) error {
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
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- from.Close(short) }()
	err = within(ctx, 10*time.Second, "a blocked Send on a closing host",
		func(ctx context.Context) error {
			select {
			case err := <-blocked:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	if err := want("a blocked Send on a closing host", err, rdmanet.ErrClosed); err != nil {
		return err
	}
	err = within(ctx, 10*time.Second, "Close with frames that nobody takes",
		func(ctx context.Context) error {
			select {
			case err := <-closed:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	if err := want("Close with frames that nobody takes", err,
		context.DeadlineExceeded); err != nil {
		return err
	}
	_, laneErr := from.Lane(f.ID(1), "other")
	err = errors.Join(
		want("Send", lane.Send(ctx, nil), rdmanet.ErrClosed),
		want("Lane", laneErr, rdmanet.ErrClosed),
		want("Receive", from.Receive("other", in.receive), rdmanet.ErrClosed),
	)
	if err != nil {
		return fmt.Errorf("on a closed host: %w", err)
	}
	return within(ctx, 10*time.Second, "closing again", func(ctx context.Context) error {
		_ = from.Close(ctx) // the first call's error, or nil
		return nil
	})
}

// checkLaneClosed: a closed lane refuses frames with ErrClosed, and a new lane of the same name
// works.
func checkLaneClosed(ctx context.Context, f Fabric) error {
	in := newInbox()
	from, _, lane, err := pair(f, in)
	if err != nil {
		return err
	}
	if err := send(ctx, lane, 0, 100, 64); err != nil {
		return err
	}
	if err := lane.Flushed(ctx); err != nil {
		return err
	}
	if err := errors.Join(lane.Close(), lane.Close()); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	_, tryErr := lane.TrySend(frameOf(100, 64))
	if err := errors.Join(
		want("Send", lane.Send(ctx, frameOf(100, 64)), rdmanet.ErrClosed),
		want("TrySend", tryErr, rdmanet.ErrClosed),
	); err != nil {
		return fmt.Errorf("on a closed lane: %w", err)
	}
	fresh, err := from.Lane(f.ID(1), "test")
	if err != nil {
		return err
	}
	if err := send(ctx, fresh, 100, 200, 64); err != nil {
		return err
	}
	if err := fresh.Flushed(ctx); err != nil {
		return err
	}
	return in.waitCount(ctx, peerOf(from), 200)
}

// checkStranger: a host that is not a member can send nothing to members, and members cannot send
// to it.
func checkStranger(ctx context.Context, f Fabric) error {
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
	stranger, err := f.Stranger()
	if err != nil || stranger == nil {
		return err
	}
	_, err = from.Lane(stranger.ID(), "test")
	if err := want("Lane to a stranger", err, rdmanet.ErrNotMember); err != nil {
		return err
	}
	intruder, err := stranger.Lane(f.ID(1), "test")
	if err != nil {
		return err
	}
	err = within(ctx, mendShort+mendSlack, "a stranger's Flushed", func(ctx context.Context) error {
		if err := intruder.Send(ctx, frameOf(10, 64)); err != nil {
			return err
		}
		return intruder.Flushed(ctx)
	})
	if err := want("a stranger's Flushed", err, rdmanet.ErrUnreachable); err != nil {
		return err
	}
	return in.waitCount(ctx, peerOf(from), 10)
}
