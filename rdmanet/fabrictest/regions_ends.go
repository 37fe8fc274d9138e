package fabrictest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// checkQueueFull: a queue takes as many operations as it has room for, all of a call or none.
// Taking completions makes room.
func checkQueueFull(ctx context.Context, f Fabric) error {
	const depth = 8
	_, peer, a, err := sharePair(ctx, f, 256, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	queue, err := peer.Queue(depth)
	if err != nil {
		return err
	}
	p := &poster{queue: queue, posted: make(map[rdmanet.PeerID][]uint64)}
	for i := range uint64(depth - 2) {
		if err := p.post(a.writeTo(0, wordBytes(i))); err != nil {
			return err
		}
	}
	three := []rdmanet.Operation{a.writeTo(8, wordBytes(1)), a.writeTo(16, wordBytes(1)),
		a.writeTo(24, wordBytes(1))}
	if err := want("three operations where there is room for two", queue.Post(three...),
		rdmanet.ErrQueueFull); err != nil {
		return err
	}
	if err := p.post(three[:2]...); err != nil {
		return fmt.Errorf("two operations where there is room for two: %w", err)
	}
	if err := want("one operation at a full queue", queue.Post(three[2]),
		rdmanet.ErrQueueFull); err != nil {
		return err
	}
	if n := queue.Outstanding(); n != depth {
		return fmt.Errorf("%d operations are outstanding, want %d", n, depth)
	}
	var one [1]rdmanet.Completion
	if n, err := queue.Wait(ctx, one[:]); n != 1 || err != nil || one[0].Tag != 1 ||
		one[0].Err != nil {
		return fmt.Errorf("%d completions, tag %d, error %v, %w", n, one[0].Tag, one[0].Err, err)
	}
	p.posted[one[0].Peer] = p.posted[one[0].Peer][1:]
	if a.region.Load(24) != 0 {
		return errors.New("an operation that was refused took place")
	}
	if err := p.post(three[2]); err != nil {
		return fmt.Errorf("one operation where there is room again: %w", err)
	}
	if err := p.drain(ctx); err != nil {
		return err
	}
	if a.region.Load(24) != 1 {
		return errors.New("the last operation did not take place")
	}
	if err := want("a call over the depth", queue.Post(make9(a)...),
		rdmanet.ErrQueueFull); err != nil {
		return err
	}
	return p.do(ctx, make9(a)[:depth]...)
}

// make9 returns nine reads.
func make9(a access) []rdmanet.Operation {
	var operations []rdmanet.Operation
	for range 9 {
		operations = append(operations, a.readFrom(0, make([]byte, 8)))
	}
	return operations
}

// waiting starts a call that must wait, and gives it time to start waiting.
func waiting(ctx context.Context, call func() error) (<-chan error, error) {
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	if err := pause(ctx, 5*time.Millisecond); err != nil {
		return nil, err
	}
	select {
	case err := <-ended:
		return nil, fmt.Errorf("a call that had to wait ended with: %w", err)
	default:
		return ended, nil
	}
}

// checkQueueClosed: Wait waits for operations that others post. It ends with its context and with
// Close.
func checkQueueClosed(ctx context.Context, f Fabric) error {
	_, peer, a, err := sharePair(ctx, f, 64, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	queue, err := peer.Queue(4)
	if err != nil {
		return err
	}
	wait := func(ctx context.Context) func() error {
		return func() error {
			var one [1]rdmanet.Completion
			_, err := queue.Wait(ctx, one[:])
			if err == nil && one[0].Tag != 77 {
				return fmt.Errorf("completion %d, want 77", one[0].Tag)
			}
			return err
		}
	}
	ended, err := waiting(ctx, wait(ctx))
	if err != nil {
		return err
	}
	operation := a.writeTo(0, wordBytes(1))
	operation.Tag = 77
	if err := queue.Post(operation); err != nil {
		return err
	}
	if err := <-ended; err != nil {
		return fmt.Errorf("waiting for what another posts: %w", err)
	}
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	if ended, err = waiting(ctx, wait(short)); err != nil {
		return err
	}
	cancel()
	if err := want("waiting with a context that ends", <-ended, context.Canceled); err != nil {
		return err
	}
	if ended, err = waiting(ctx, wait(ctx)); err != nil {
		return err
	}
	if err := errors.Join(queue.Close(), queue.Close()); err != nil {
		return err
	}
	if err := want("waiting at a queue that is closed", <-ended, rdmanet.ErrClosed); err != nil {
		return err
	}
	if err := want("posting to a closed queue", queue.Post(operation),
		rdmanet.ErrClosed); err != nil {
		return err
	}
	// Operations that are outstanding when a queue is closed continue without it.
	second, err := newPoster(peer)
	if err != nil {
		return err
	}
	large := wordsOf(make([]byte, 64), 9)
	if err := second.queue.Post(a.writeTo(0, large), a.writeTo(0, large)); err != nil {
		return err
	}
	if err := second.queue.Close(); err != nil {
		return err
	}
	if err := within(ctx, mendSlack, "emptying a closed queue", func(ctx context.Context) error {
		for {
			if _, err := second.queue.Wait(ctx, second.into[:]); err != nil {
				return want("a closed queue that is empty", err, rdmanet.ErrClosed)
			}
		}
	}); err != nil {
		return err
	}
	if err := a.do(ctx, a.readFrom(0, make([]byte, 8))); err != nil {
		return fmt.Errorf("another queue, after one was closed: %w", err)
	}
	if a.region.Load(56) != 9 {
		return errors.New("what was outstanding when the queue was closed did not take place")
	}
	return nil
}

// checkAttachmentClosed: outstanding operations complete, and later ones complete with ErrClosed.
// Other attachments to the region go on.
func checkAttachmentClosed(ctx context.Context, f Fabric) error {
	const size = 4096
	_, peer, a, err := sharePair(ctx, f, size, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	other, err := peer.Attach(ctx, a.attachment.Peer().ID, "test")
	if err != nil {
		return err
	}
	ended := a.streaming(ctx, size)
	if err := flowing(ctx, a.region, ended); err != nil {
		return err
	}
	if err := errors.Join(a.attachment.Close(), a.attachment.Close()); err != nil {
		return err
	}
	if err := want("the stream of an attachment that was closed", <-ended,
		rdmanet.ErrClosed); err != nil {
		return err
	}
	if err := want("a later operation", a.do(ctx, a.readFrom(0, make([]byte, 8))),
		rdmanet.ErrClosed); err != nil {
		return err
	}
	if err := want("the attachment", a.attachment.Err(), rdmanet.ErrClosed); err != nil {
		return err
	}
	a.attachment = other
	return a.do(ctx, a.writeTo(0, wordBytes(1)))
}

// checkRegionClosed: closing a region during a stream of writes ends its attachments and wakes the
// callers of Await.
func checkRegionClosed(ctx context.Context, f Fabric) error {
	const size = 4096
	owner, peer, a, err := sharePair(ctx, f, size, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	ended := a.streaming(ctx, size)
	if err := flowing(ctx, a.region, ended); err != nil {
		return err
	}
	awaits, err := waiting(ctx, func() error {
		return a.region.Await(ctx, func() bool { return false })
	})
	if err != nil {
		return err
	}
	if err := errors.Join(a.region.Close(), a.region.Close()); err != nil {
		return err
	}
	if err := want("awaiting a region that is closed", <-awaits, rdmanet.ErrClosed); err != nil {
		return err
	}
	if err := want("the stream to a region that is closed", <-ended,
		rdmanet.ErrAccess); err != nil {
		return err
	}
	if err := want("a later operation", a.do(ctx, a.readFrom(0, make([]byte, 8))),
		rdmanet.ErrAccess); err != nil {
		return err
	}
	if err := want("Grant", a.region.Grant(peerOf(peer), rdmanet.PermissionRead),
		rdmanet.ErrClosed); err != nil {
		return err
	}
	_, err = peer.Attach(ctx, owner.ID(), "test")
	if err := want("attaching to a region that is closed", err, rdmanet.ErrNoRegion); err != nil {
		return err
	}
	if a, err = share(ctx, owner, peer, "test", size, rdmanet.PermissionReadWrite); err != nil {
		return fmt.Errorf("the same name again: %w", err)
	}
	if a.region.Load(0) != 0 {
		return errors.New("a fresh region is not zero")
	}
	return a.do(ctx, a.writeTo(0, wordBytes(1)))
}

// closeHost closes a host within a bounded time.
func closeHost(ctx context.Context, host rdmanet.Host) error {
	return within(ctx, mendShort+mendSlack, "closing a host", host.Close)
}

// checkHostClosed: closing a host ends its queues, regions and attachments. Its writers find it
// unreachable.
func checkHostClosed(ctx context.Context, f Fabric) error {
	const size = 64
	owner, peer, a, err := sharePair(ctx, f, size, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	mine, err := share(ctx, peer, owner, "mine", size, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	queue, err := owner.Queue(4)
	if err != nil {
		return err
	}
	awaits, err := waiting(ctx, func() error {
		return a.region.Await(ctx, func() bool { return false })
	})
	if err != nil {
		return err
	}
	waits, err := waiting(ctx, func() error {
		var one [1]rdmanet.Completion
		_, err := queue.Wait(ctx, one[:])
		return err
	})
	if err != nil {
		return err
	}
	if err := closeHost(ctx, owner); err != nil {
		return err
	}
	_, exposes := owner.Expose("late", 8)
	_, attaches := owner.Attach(ctx, f.ID(1), "mine")
	_, queues := owner.Queue(1)
	for what, err := range map[string]error{
		"Await": <-awaits, "Wait": <-waits, "Expose": exposes, "Attach": attaches, "Queue": queues,
		"Post":  queue.Post(mine.writeTo(0, wordBytes(1))),
		"Grant": a.region.Grant(peerOf(peer), rdmanet.PermissionRead),
	} {
		if err := want(what+" of a host that is closed", err, rdmanet.ErrClosed); err != nil {
			return err
		}
	}
	if err := within(ctx, mendShort+mendSlack,
		"writing to a host that was closed", func(ctx context.Context) error {
			// Its regions may have been closed just before.
			return wantOneOf("writing to a host that was closed",
				a.do(ctx, a.writeTo(0, wordBytes(1))),
				rdmanet.ErrUnreachable, rdmanet.ErrAccess)
		}); err != nil {
		return err
	}
	if mine.region.Load(0) != 0 {
		return errors.New("a host that was closed wrote")
	}
	return nil
}

// checkCloseUnderLoad: every member writes to every member while regions, attachments, queues and
// hosts are closed. Every operation completes once, and nothing hangs.
func checkCloseUnderLoad(ctx context.Context, f Fabric) error {
	const members, size = 4, 4096
	hosts, err := startRegions(f, members)
	if err != nil {
		return err
	}
	var regions [members]rdmanet.Region
	for i := range hosts {
		if regions[i], err = hosts[i].Expose("test", size); err != nil {
			return err
		}
	}
	var streams []func() error
	var flow atomic.Int64
	for i := range hosts {
		for k := range hosts {
			if i == k {
				continue
			}
			a, err := join(ctx, regions[i], hosts[i], hosts[k], rdmanet.PermissionReadWrite)
			if err != nil {
				return err
			}
			streams = append(streams, func() error {
				_, err := a.stream(ctx, func(uint64) rdmanet.Operation {
					flow.Add(1)
					return a.writeTo(0, make([]byte, size))
				})
				if err == nil {
					return errors.New("a stream ended without an error")
				}
				// The writer's own close shows as ErrClosed, at the queue or in the completions.
				return wantOneOf(fmt.Sprintf("the stream from %d to %d", k, i), err,
					rdmanet.ErrAccess, rdmanet.ErrClosed, rdmanet.ErrUnreachable)
			})
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- together(streams...) }()
	for flow.Load() < 2000 {
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	if err := regions[0].Close(); err != nil {
		return err
	}
	var closes []func() error
	for _, host := range hosts[1:] {
		closes = append(closes, func() error { return closeHost(ctx, host) })
	}
	if err := together(closes...); err != nil {
		return err
	}
	return within(ctx, mendShort+mendSlack, "streams between hosts that were closed",
		func(context.Context) error {
			return <-ended
		})
}

// checkAwait: a write with Ring wakes all waiters at the owner, and they see the write. So does
// Wake. A context ends the waiting.
func checkAwait(ctx context.Context, f Fabric) error {
	const rounds, waiters = 200, 3
	_, _, a, err := sharePair(ctx, f, 256, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	awake := make(chan error, waiters)
	for round := range uint64(rounds) {
		for range waiters {
			go func() {
				awake <- a.region.Await(ctx, func() bool { return a.region.Load(128) > round })
			}()
		}
		if round%16 == 0 { // so that the waiters are parked
			if err := pause(ctx, time.Millisecond); err != nil {
				return err
			}
		}
		ring := a.writeTo(0, wordsOf(make([]byte, 136), round+1))
		ring.Ring = true
		if err := a.do(ctx, ring); err != nil {
			return err
		}
		for range waiters {
			if err := <-awake; err != nil {
				return fmt.Errorf("round %d: waiting for a write that rings: %w", round, err)
			}
		}
	}
	var done atomic.Bool
	woken, err := waiting(ctx, func() error { return a.region.Await(ctx, done.Load) })
	if err != nil {
		return err
	}
	done.Store(true)
	a.region.Wake()
	if err := <-woken; err != nil {
		return err
	}
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	ended, err := waiting(ctx, func() error {
		return a.region.Await(short, func() bool { return false })
	})
	if err != nil {
		return err
	}
	cancel()
	return want("awaiting with a context that ends", <-ended, context.Canceled)
}

// checkAwaitRests: a waiter checks for a short time and then stops while nothing happens. A write
// without Ring does not wake it; each write with Ring makes it check again.
func checkAwaitRests(ctx context.Context, f Fabric) error {
	const looksMax = 1000
	_, _, a, err := sharePair(ctx, f, 64, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	var looks atomic.Int64
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- a.region.Await(short, func() bool {
			looks.Add(1)
			return false
		})
	}()
	// rest waits until the waiter stops checking, and returns how often it has checked.
	rest := func() (int64, error) {
		for before := int64(-1); ; {
			now := looks.Load()
			if now > looksMax {
				return 0, fmt.Errorf("a waiter looked %d times while nothing happened", now)
			}
			if now > 0 && now == before {
				return now, nil
			}
			before = now
			if err := pause(ctx, 20*time.Millisecond); err != nil {
				return 0, err
			}
		}
	}
	rested, err := rest()
	if err != nil {
		return err
	}
	if err := a.do(ctx, a.writeTo(0, wordBytes(1))); err != nil {
		return err
	}
	quiet := a.writeTo(8, wordBytes(2))
	quiet.Ring = true
	if err := a.do(ctx, quiet); err != nil {
		return err
	}
	for looks.Load() == rested {
		if err := pause(ctx, time.Millisecond); err != nil {
			return errors.New("a write that rings does not wake who waits")
		}
	}
	if _, err := rest(); err != nil {
		return err
	}
	cancel()
	return want("awaiting with a context that ends", <-ended, context.Canceled)
}

// checkRegionStranger: a host that is not a member can neither attach nor be granted access.
func checkRegionStranger(ctx context.Context, f Fabric) error {
	owner, err := startRegionHost(f, 0)
	if err != nil {
		return err
	}
	region, err := owner.Expose("test", 64)
	if err != nil {
		return err
	}
	s, err := f.Stranger()
	if err != nil {
		return err
	}
	if s == nil {
		return errSkip
	}
	stranger, ok := s.(rdmanet.RegionHost)
	if !ok {
		return errors.New("the stranger has no regions")
	}
	if err := want("granting to a stranger", region.Grant(peerOf(stranger),
		rdmanet.PermissionReadWrite), rdmanet.ErrNotMember); err != nil {
		return err
	}
	if err := within(ctx, mendShort+mendSlack,
		"a stranger's attaching", func(ctx context.Context) error {
			if _, err := stranger.Attach(ctx, owner.ID(), "test"); err == nil {
				return errors.New("a stranger attached")
			}
			return nil
		}); err != nil {
		return err
	}
	_, err = owner.Attach(ctx, stranger.ID(), "test")
	return want("attaching to a stranger's", err, rdmanet.ErrNotMember)
}
