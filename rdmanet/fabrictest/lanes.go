package fabrictest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// checkFIFO: frames arrive in order, once and intact, in both directions and on parallel lanes.
func checkFIFO(ctx context.Context, f Fabric) error {
	count := volume(f, 20_000)
	hosts, inboxes := [2]rdmanet.Host{}, map[string]*inbox{}
	for i := range hosts {
		h, err := f.Start(i)
		if err != nil {
			return err
		}
		hosts[i] = h
		for _, name := range []string{"bulk", "control"} {
			in := newInbox()
			inboxes[fmt.Sprint(i, name)] = in
			if err := h.Receive(name, in.receive); err != nil {
				return err
			}
		}
	}
	var work []func() error
	for i := range hosts {
		for name, sizes := range map[string][]int{"bulk": {64, 1000, 8, 30_000, 9},
			"control": {8, 16}} {
			work = append(work, func() error {
				lane, err := hosts[i].Lane(f.ID(1-i), name)
				if err != nil {
					return err
				}
				if again, err := hosts[i].Lane(f.ID(1-i), name); err != nil || again != lane {
					return fmt.Errorf("a second call of Lane gave another lane, error %v", err)
				}
				if err := send(ctx, lane, 0, uint64(count), sizes...); err != nil {
					return err
				}
				if err := lane.Flushed(ctx); err != nil {
					return fmt.Errorf("flush: %w", err)
				}
				if pending := lane.Pending(); pending != 0 {
					return fmt.Errorf("%d frames pending after the flush", pending)
				}
				in := inboxes[fmt.Sprint(1-i, name)]
				if got := in.count(); got < count {
					return fmt.Errorf("flushed, but %d frames of %d were taken", got, count)
				}
				if err := in.waitCount(ctx, peerOf(hosts[i]), count); err != nil {
					return fmt.Errorf("lane %s of host %d: %w", name, i, err)
				}
				return in.quiet(ctx, count)
			})
		}
	}
	return together(work...)
}

// checkNames: names are checked. A lane whose name is registered late waits for it.
func checkNames(ctx context.Context, f Fabric) error {
	from, err := f.Start(0)
	if err != nil {
		return err
	}
	to, err := f.Start(1)
	if err != nil {
		return err
	}
	long := string(bytes.Repeat([]byte{'n'}, rdmanet.LaneNameMax+1))
	for _, name := range []string{"", long} {
		_, err := from.Lane(f.ID(1), name)
		if err := errors.Join(want("Lane", err, rdmanet.ErrLaneName),
			want("Receive", to.Receive(name, newInbox().receive),
				rdmanet.ErrLaneName)); err != nil {
			return fmt.Errorf("name of %d bytes: %w", len(name), err)
		}
	}
	lane, err := from.Lane(f.ID(1), long[1:])
	if err != nil {
		return fmt.Errorf("the longest name: %w", err)
	}
	if err := send(ctx, lane, 0, 100, 64); err != nil {
		return err
	}
	// By now the lane has had time to be refused.
	if err := pause(ctx, 100*time.Millisecond); err != nil {
		return err
	}
	in := newInbox()
	if err := to.Receive(long[1:], in.receive); err != nil {
		return err
	}
	if err := want("a second receiver", to.Receive(long[1:], in.receive),
		rdmanet.ErrDuplicate); err != nil {
		return err
	}
	return in.waitCount(ctx, peerOf(from), 100)
}

// checkConcurrentSenders: the frames of one call stay together, those of one caller keep their
// order, and no caller starves at a narrow window.
func checkConcurrentSenders(ctx context.Context, f Fabric) error {
	const callers, calls, together3 = 8, 300, 3
	in := newInbox()
	_, _, lane, err := pair(f, in)
	if err != nil {
		return err
	}
	var work []func() error
	for caller := range uint64(callers) {
		work = append(work, func() error {
			for call := range uint64(calls) {
				var frames [together3][]byte
				for k := range frames {
					frames[k] = frameOf(caller<<32|call*together3+uint64(k), 40)
				}
				if err := lane.Send(ctx, frames[:]...); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := together(work...); err != nil {
		return err
	}
	frames, err := in.wait(ctx, "all frames", func(a []arrival) bool {
		return len(a) >= callers*calls*together3
	})
	if err != nil {
		return err
	}
	var next [callers]uint64
	for i, a := range frames {
		caller := binary.BigEndian.Uint64(a.frame) >> 32
		if i%together3 != 0 && caller != binary.BigEndian.Uint64(frames[i-1].frame)>>32 {
			return fmt.Errorf("frame %d: the frames of one call were parted", i)
		}
		if err := checkFrame(a.frame, caller<<32|next[caller]); err != nil {
			return err
		}
		next[caller]++
	}
	return nil
}

// checkRelay: the program may keep frames and relay them unchanged while more arrive. The fabric
// does not write to them again.
func checkRelay(ctx context.Context, f Fabric) error {
	count := volume(f, 5_000)
	var hosts [3]rdmanet.Host
	for i := range hosts {
		h, err := f.Start(i)
		if err != nil {
			return err
		}
		hosts[i] = h
	}
	kept, end := newInbox(), newInbox()
	onward, err := hosts[1].Lane(f.ID(2), "test")
	if err != nil {
		return err
	}
	var relayError error
	var once sync.Once
	err = hosts[1].Receive("test", func(from rdmanet.Peer, frames [][]byte) {
		kept.receive(from, frames)
		if err := onward.Send(ctx, frames...); err != nil {
			once.Do(func() { relayError = err })
		}
	})
	if err := errors.Join(err, hosts[2].Receive("test", end.receive)); err != nil {
		return err
	}
	lane, err := hosts[0].Lane(f.ID(1), "test")
	if err != nil {
		return err
	}
	if err := send(ctx, lane, 0, uint64(count), 8, 100, 2_000, 70_000); err != nil {
		return err
	}
	if err := end.waitCount(ctx, peerOf(hosts[1]), count); err != nil {
		return errors.Join(err, relayError)
	}
	return kept.waitCount(ctx, peerOf(hosts[0]), count)
}

// checkManyPeers: every member sends to every other member.
func checkManyPeers(ctx context.Context, f Fabric) error {
	const membersMax, count = 16, 100
	members := max(volume(f, membersMax), 6)
	hosts := make([]rdmanet.Host, members)
	var inboxes [membersMax][membersMax]*inbox
	for i := range hosts {
		h, err := f.Start(i)
		if err != nil {
			return err
		}
		hosts[i] = h
		byPeer := make(map[rdmanet.PeerID]*inbox)
		for k := range members {
			inboxes[i][k] = newInbox()
			byPeer[f.ID(k)] = inboxes[i][k]
		}
		if err := h.Receive("test", func(from rdmanet.Peer, frames [][]byte) {
			byPeer[from.ID].receive(from, frames)
		}); err != nil {
			return err
		}
	}
	var work []func() error
	for i := range hosts {
		for k := range hosts {
			if i == k {
				continue
			}
			work = append(work, func() error {
				lane, err := hosts[i].Lane(f.ID(k), "test")
				if err != nil {
					return err
				}
				if err := send(ctx, lane, 0, count, 64, 500); err != nil {
					return err
				}
				if err := inboxes[k][i].waitCount(ctx, peerOf(hosts[i]), count); err != nil {
					return fmt.Errorf("from %d to %d: %w", i, k, err)
				}
				return nil
			})
		}
	}
	return together(work...)
}

// checkFrameWindow: a receiver that blocks stops the sender at 64 frames.
func checkFrameWindow(ctx context.Context, f Fabric) error { return checkWindow(ctx, f, 64, 100) }

// checkByteWindow: a receiver that blocks stops the sender at 256 KiB.
func checkByteWindow(ctx context.Context, f Fabric) error { return checkWindow(ctx, f, 16, 16<<10) }

// checkWindow: a receiver that blocks stops the sender but no lane with another name. No frame is
// lost when the receiver goes on.
func checkWindow(ctx context.Context, f Fabric, holds uint64, size int) error {
	in, control := newGatedInbox(), newInbox()
	var open sync.Once
	defer open.Do(func() { close(in.gate) })
	from, to, lane, err := pair(f, in)
	if err != nil {
		return err
	}
	if err := to.Receive("control", control.receive); err != nil {
		return err
	}
	other, err := from.Lane(f.ID(1), "control")
	if err != nil {
		return err
	}
	if err := lane.Send(ctx, frameOf(0, size)); err != nil {
		return err
	}
	select {
	case <-in.entered:
	case <-ctx.Done():
		return errors.New("the first frame did not arrive")
	}
	sent := uint64(1)
	for {
		ok, err := lane.TrySend(frameOf(sent, size))
		if err != nil {
			return fmt.Errorf("TrySend: %w", err)
		}
		if !ok {
			break
		}
		sent++
		if sent > holds {
			return fmt.Errorf("%d frames were accepted, and none was taken: the window holds %d",
				sent, holds)
		}
	}
	if sent != holds || lane.Pending() != int(holds) {
		return fmt.Errorf("%d frames were accepted and %d are pending, the window holds %d",
			sent, lane.Pending(), holds)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	err = lane.Send(short, frameOf(sent, size))
	cancel()
	if err := want("Send at a full window", err, context.DeadlineExceeded); err != nil {
		return err
	}
	if err := send(ctx, other, 0, 100, 64); err != nil {
		return err
	}
	if err := control.waitCount(ctx, peerOf(from), 100); err != nil {
		return fmt.Errorf("the control lane beside a full one: %w", err)
	}
	blocked := make(chan error, 1)
	go func() { blocked <- send(ctx, lane, sent, sent+500, size) }()
	open.Do(func() { close(in.gate) })
	if err := <-blocked; err != nil {
		return fmt.Errorf("sending after the receiver went on: %w", err)
	}
	return in.waitCount(ctx, peerOf(from), int(sent)+500)
}

// checkSizes: frames of every size up to the bound arrive. Larger ones are refused, and the lane
// goes on.
func checkSizes(ctx context.Context, f Fabric) error {
	const bound, window = 4 << 20, 6 << 20
	in := newInbox()
	_, _, lane, err := pair(f, in)
	if err != nil {
		return err
	}
	var sent [][]byte
	for _, size := range []int{0, 1, 0, 2, 15, 16, 17, 4095, 4096, 65_486, 65_487, 65_488, 65_507,
		65_536, 100_000, 262_143, 262_144, 262_145,
		1 << 20, bound - 1, bound, 0, 1, bound, 3} {
		frame := bytes.Repeat([]byte{byte(size*7 + 1)}, size)
		sent = append(sent, frame)
		if err := lane.Send(ctx, frame); err != nil {
			return fmt.Errorf("frame of %d bytes: %w", size, err)
		}
		if err := want("a frame over the bound", lane.Send(ctx, make([]byte, bound+1)),
			rdmanet.ErrTooLarge); err != nil {
			return err
		}
		ok, err := lane.TrySend([]byte("not sent either"), make([]byte, bound+1))
		if err := want("TrySend over the bound", err, rdmanet.ErrTooLarge); ok || err != nil {
			return fmt.Errorf("sent %t: %w", ok, err)
		}
	}
	half := make([]byte, window/2)
	if err := want("a call over the window", lane.Send(ctx, half, half, half[:1]),
		rdmanet.ErrTooLarge); err != nil {
		return err
	}
	if err := lane.Send(ctx); err != nil {
		return fmt.Errorf("a call without frames: %w", err)
	}
	if err := lane.Flushed(ctx); err != nil {
		return err
	}
	got, err := in.wait(ctx, "all frames", func(a []arrival) bool { return len(a) >= len(sent) })
	if err != nil {
		return err
	}
	if len(got) != len(sent) {
		return fmt.Errorf("%d frames arrived, %d were sent", len(got), len(sent))
	}
	for i, a := range got {
		if !bytes.Equal(a.frame, sent[i]) {
			return fmt.Errorf("frame %d of %d bytes arrived as another one of %d", i, len(sent[i]),
				len(a.frame))
		}
	}
	return nil
}
