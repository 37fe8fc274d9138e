package fabrictest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// gone are the errors of operations on a host that is unreachable or has restarted.
var gone = []error{rdmanet.ErrUnreachable, rdmanet.ErrReset}

// errEnough ends a stream that did not end otherwise.
var errEnough = errors.New("enough")

// checkSeveredWriter: connections that break under a stream of writes leave no gap. If an
// attachment ends because of that, a new one works.
func checkSeveredWriter(ctx context.Context, f Fabric) error {
	const words, rounds = 512, 10
	hosts, err := startRegions(f, 2)
	if err != nil {
		return err
	}
	region, err := hosts[0].Expose("test", 8*words)
	if err != nil {
		return err
	}
	for round := range rounds {
		a, err := join(ctx, region, hosts[0], hosts[1], rdmanet.PermissionReadWrite)
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if err := a.do(ctx, a.writeTo(0, make([]byte, 8*words))); err != nil {
			return fmt.Errorf("round %d: the first write: %w", round, err)
		}
		stop := make(chan struct{})
		severed := make(chan error, 1)
		go func() {
			for k := range 3 {
				if err := pause(ctx, 2*time.Millisecond); err != nil {
					severed <- err
					return
				}
				f.Sever(k%2, 1-k%2)
			}
			close(stop)
			severed <- nil
		}()
		var completed uint64
		var ended error
		for i := uint64(0); ended == nil; {
			var batch []rdmanet.Operation
			for range 16 {
				batch = append(batch, a.writeTo(int(i%words)*8, wordBytes(i+1)))
				i++
			}
			if err := a.post(batch...); err != nil {
				return err
			}
			for a.outstanding() > 0 {
				completions, err := a.take(ctx)
				if err != nil {
					return err
				}
				for _, completion := range completions {
					switch {
					case completion.Err != nil:
						ended = completion.Err
					case ended != nil:
						return errors.New("a write succeeded behind one that failed")
					default:
						completed++
					}
				}
			}
			select {
			case <-stop:
				if ended == nil {
					ended = errEnough
				}
			default:
			}
		}
		if err := <-severed; err != nil {
			return err
		}
		if err := wantOneOf("a severed stream", ended, errEnough,
			rdmanet.ErrUnreachable); err != nil {
			return err
		}
		// Operations under way on a broken attachment may land until the owner changes the
		// permission.
		if err := region.Revoke(peerOf(hosts[1])); err != nil {
			return err
		}
		if err := prefix(region, words, completed); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if err := a.queue.Close(); err != nil {
			return err
		}
	}
	return nil
}

// checkOneLife: a grant to one incarnation of a peer does not apply to the next, and does not
// hinder it.
func checkOneLife(ctx context.Context, f Fabric) error {
	hosts, err := startRegions(f, 2)
	if err != nil {
		return err
	}
	a, err := share(ctx, hosts[0], hosts[1], "test", 64, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	former := peerOf(hosts[1])
	if err := a.do(ctx, a.writeTo(0, wordBytes(1))); err != nil {
		return err
	}
	f.Kill(1)
	next, err := startRegionHost(f, 1)
	if err != nil {
		return err
	}
	_, err = next.Attach(ctx, f.ID(0), "test")
	if err := want("the next life attaches to what was granted to the former", err,
		rdmanet.ErrAccess); err != nil {
		return err
	}
	b, err := join(ctx, a.region, hosts[0], next, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	if err := a.region.Revoke(former); err != nil {
		return err
	}
	if err := b.do(ctx, b.writeTo(8, wordBytes(2))); err != nil {
		return fmt.Errorf("the next life, after the former lost its permission: %w", err)
	}
	if a.region.Load(0) != 1 || a.region.Load(8) != 2 {
		return errors.New("the writes of two lives are not both there")
	}
	return nil
}

// checkDeadOwner: operations to an owner that crashes end with one error, those under way and later
// ones. Operations to others go on.
func checkDeadOwner(ctx context.Context, f Fabric) error {
	const size = 4096
	hosts, err := startRegions(f, 3)
	if err != nil {
		return err
	}
	dies, err := share(ctx, hosts[0], hosts[1], "test", size, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	lives, err := share(ctx, hosts[2], hosts[1], "test", size, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	ended := dies.streaming(ctx, size)
	if err := flowing(ctx, dies.region, ended); err != nil {
		return err
	}
	f.Kill(0)
	if err := within(ctx, mendShort+mendSlack,
		"the stream to a dead owner", func(ctx context.Context) error {
			select {
			case err := <-ended:
				return want("the stream to a dead owner", err, rdmanet.ErrUnreachable)
			case <-ctx.Done():
				return ctx.Err()
			}
		}); err != nil {
		return err
	}
	if err := want("the attachment", dies.attachment.Err(), rdmanet.ErrUnreachable); err != nil {
		return err
	}
	// Both in one call: the failure of one does not affect the other.
	if err := lives.post(dies.writeTo(0, wordBytes(1)), lives.writeTo(0, wordBytes(7)),
		dies.readFrom(0, make([]byte, 8))); err != nil {
		return err
	}
	return within(ctx, mendShort+mendSlack, "a batch to a dead owner and another",
		func(ctx context.Context) error {
			for lives.outstanding() > 0 {
				completions, err := lives.take(ctx)
				if err != nil {
					return err
				}
				for _, completion := range completions {
					wanted := error(nil)
					if completion.Peer == f.ID(0) {
						wanted = rdmanet.ErrUnreachable
					}
					if err := want("an operation on "+string(completion.Peer), completion.Err,
						wanted); err != nil {
						return err
					}
				}
			}
			if lives.region.Load(0) != 7 {
				return errors.New("the write to the owner that lives did not land")
			}
			return nil
		})
}

// checkAbsentOwner: Attach waits for an owner that is not there, no longer than the mend timeout
// and its context, and succeeds if the owner starts.
func checkAbsentOwner(ctx context.Context, f Fabric) error {
	peer, err := startRegionHost(f, 1)
	if err != nil {
		return err
	}
	if err := within(ctx, mendShort+mendSlack,
		"attaching to an absent owner", func(ctx context.Context) error {
			_, err := peer.Attach(ctx, f.ID(0), "test")
			return want("attaching to an absent owner", err, rdmanet.ErrUnreachable)
		}); err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err = peer.Attach(short, f.ID(0), "test")
	if err := want("attaching with a short context", err, context.DeadlineExceeded); err != nil {
		return err
	}
	came := make(chan error, 1)
	go func() {
		_, err := peer.Attach(ctx, f.ID(0), "none")
		came <- err
	}()
	if err := pause(ctx, 20*time.Millisecond); err != nil {
		return err
	}
	owner, err := startRegionHost(f, 0)
	if err != nil {
		return err
	}
	if err := want("attaching to one that came", <-came, rdmanet.ErrNoRegion); err != nil {
		return err
	}
	a, err := share(ctx, owner, peer, "test", 8, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	return a.do(ctx, a.writeTo(0, wordBytes(1)))
}

// checkOwnerRestarts: an attachment leads to one incarnation of its owner and never to the next,
// even if that exposes the same region.
func checkOwnerRestarts(ctx context.Context, f Fabric) error {
	hosts, err := startRegions(f, 2)
	if err != nil {
		return err
	}
	a, err := share(ctx, hosts[0], hosts[1], "test", 64, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	idle, err := hosts[1].Attach(ctx, f.ID(0), "test")
	if err != nil {
		return err
	}
	if err := a.do(ctx, a.writeTo(0, wordBytes(1))); err != nil {
		return err
	}
	f.Kill(0)
	owner, err := startRegionHost(f, 0)
	if err != nil {
		return err
	}
	b, err := share(ctx, owner, hosts[1], "test", 64, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	if b.region.Load(0) != 0 {
		return errors.New("the next life's region is not zero")
	}
	if err := within(ctx, mendShort+mendSlack,
		"writing to the former life", func(ctx context.Context) error {
			err := a.do(ctx, a.writeTo(0, wordBytes(9)), a.readFrom(0, make([]byte, 8)))
			if err := wantOneOf("writing to the former life", err, gone...); err != nil {
				return err
			}
			err = b.do(ctx, rdmanet.Operation{To: idle, Kind: rdmanet.OperationWrite,
				Bytes: wordBytes(8)})
			return wantOneOf("writing to the former life through an idle attachment", err, gone...)
		}); err != nil {
		return err
	}
	if err := b.do(ctx, b.writeTo(8, wordBytes(2))); err != nil {
		return fmt.Errorf("the next life: %w", err)
	}
	if b.region.Load(0) != 0 || b.region.Load(8) != 2 {
		return errors.New("what was written to the former life landed in the next one")
	}
	return nil
}

// checkCutHeals: a link that drops everything for a while delays operations, or ends the
// attachment. There is no gap, and no operation completes without having landed.
func checkCutHeals(ctx context.Context, f Fabric) error {
	const words = 64
	_, peer, a, err := sharePair(ctx, f, 8*words, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	ahead := uint64(0)
	next := func() rdmanet.Operation {
		ahead++
		return a.writeTo(int((ahead-1)%words)*8, wordBytes(ahead))
	}
	if err := a.do(ctx, next(), next()); err != nil {
		return err
	}
	f.Cut(0, 1)
	bytes := wordBytes(3)
	operation := next()
	operation.Bytes = bytes
	if err := a.post(operation, next(), next()); err != nil {
		return fmt.Errorf("posting to who is cut off: %w", err)
	}
	clear(bytes) // inline bytes belong to the caller
	if err := a.post(next()); err != nil {
		return err
	}
	if err := pause(ctx, 50*time.Millisecond); err != nil {
		return err
	}
	if n := a.queue.Poll(a.into[:]); n != 0 {
		return fmt.Errorf("%d operations completed across a cut wire, the first with error %v",
			n, a.into[0].Err)
	}
	if a.region.Load(16) != 0 {
		return errors.New("a write landed across a cut wire")
	}
	f.Mend(0, 1)
	done := uint64(2)
	var ended error
	if err := within(ctx, 4*time.Second+mendSlack,
		"operations on a wire that was mended", func(ctx context.Context) error {
			for a.outstanding() > 0 {
				completions, err := a.take(ctx)
				if err != nil {
					return err
				}
				for _, completion := range completions {
					if completion.Err != nil {
						ended = completion.Err
					} else if done++; ended != nil {
						return errors.New("a write succeeded behind one that failed")
					}
				}
			}
			return nil
		}); err != nil {
		return err
	}
	if err := wantOneOf("operations across the cut", ended, nil,
		rdmanet.ErrUnreachable); err != nil {
		return err
	}
	if err := a.region.Revoke(peerOf(peer)); err != nil {
		return err
	}
	if err := prefix(a.region, words, done); err != nil {
		return err
	}
	if ended == nil && a.region.Load(40) != 6 {
		return errors.New("all writes completed, but the last did not land")
	}
	return nil
}

// checkCutStays: operations to a peer that is cut off complete with ErrUnreachable within the mend
// timeout, those to others at once. When the link is mended a new attachment works. Once the owner
// has revoked access, no earlier operation lands.
func checkCutStays(ctx context.Context, f Fabric) error {
	hosts, err := startRegions(f, 3)
	if err != nil {
		return err
	}
	a, err := share(ctx, hosts[0], hosts[1], "test", 64, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	other, err := share(ctx, hosts[2], hosts[1], "test", 64, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	f.Cut(0, 1)
	if err := a.post(a.writeTo(0, wordBytes(1)), a.readFrom(0, make([]byte, 8)),
		a.writeTo(8, wordBytes(1))); err != nil {
		return err
	}
	// An operation held up by the others would take as long as they do.
	if err := within(ctx, mendShort*9/10, "an operation beside a cut wire",
		func(ctx context.Context) error {
			return other.do(ctx, other.writeTo(0, wordBytes(1)))
		}); err != nil {
		return err
	}
	if err := within(ctx, mendShort+mendSlack,
		"operations across a cut wire", func(ctx context.Context) error {
			for a.outstanding() > 0 {
				completions, err := a.take(ctx)
				if err != nil {
					return err
				}
				for _, completion := range completions {
					if err := want("an operation across a cut wire", completion.Err,
						rdmanet.ErrUnreachable); err != nil {
						return err
					}
				}
			}
			return nil
		}); err != nil {
		return err
	}
	if err := want("the attachment", a.attachment.Err(), rdmanet.ErrUnreachable); err != nil {
		return err
	}
	f.Mend(0, 1)
	if err := a.region.Revoke(peerOf(hosts[1])); err != nil {
		return err
	}
	before := sample(a.region, nil)
	b, err := join(ctx, a.region, hosts[0], hosts[1], rdmanet.PermissionReadWrite)
	if err != nil {
		return fmt.Errorf("after the wire was mended: %w", err)
	}
	if err := want("the former attachment", a.do(ctx, a.writeTo(16, wordBytes(1))),
		rdmanet.ErrUnreachable); err != nil {
		return err
	}
	if err := unchanged(ctx, a.region, before,
		"the permission was revoked after a cut"); err != nil {
		return err
	}
	if err := b.do(ctx, b.writeTo(24, wordBytes(5))); err != nil {
		return err
	}
	if a.region.Load(24) != 5 {
		return errors.New("a write over the mended wire did not land")
	}
	return nil
}

// checkRevokeBehindCut: revoking does not depend on the peer. Operations that are still on their
// way then do not take place, even if the peer is granted access again.
func checkRevokeBehindCut(ctx context.Context, f Fabric) error {
	_, peer, a, err := sharePair(ctx, f, 256, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	f.Cut(0, 1)
	if err := a.post(a.writeTo(0, wordBytes(1)), a.writeTo(0, make([]byte, 200)),
		a.writeTo(248, wordBytes(1))); err != nil {
		return err
	}
	if err := within(ctx, mendSlack, "revoking what a peer has that is cut off",
		func(context.Context) error {
			return errors.Join(a.region.Revoke(peerOf(peer)),
				a.region.Grant(peerOf(peer), rdmanet.PermissionReadWrite))
		}); err != nil {
		return err
	}
	a.region.Store(8, 7)
	before := sample(a.region, nil)
	f.Mend(0, 1)
	if err := within(ctx, 4*time.Second+mendSlack,
		"operations behind a cut", func(ctx context.Context) error {
			return wantOneOf("operations behind a cut, revoked meanwhile", a.drain(ctx),
				rdmanet.ErrAccess, rdmanet.ErrUnreachable)
		}); err != nil {
		return err
	}
	if err := unchanged(ctx, a.region, before,
		"the permission was revoked behind a cut"); err != nil {
		return err
	}
	b, err := peer.Attach(ctx, a.attachment.Peer().ID, "test")
	if err != nil {
		return err
	}
	a.attachment = b
	return a.do(ctx, a.writeTo(0, wordBytes(1)))
}

// checkHangingProgram: peers can read and write an owner whose program takes no frames and reads no
// memory.
func checkHangingProgram(ctx context.Context, f Fabric) error {
	owner, peer, a, err := sharePair(ctx, f, 4096, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	over := make(chan struct{})
	hangs, awaits := make(chan struct{}), make(chan error, 1)
	if err := owner.Receive("test", func(rdmanet.Peer, [][]byte) {
		close(hangs)
		<-over
	}); err != nil {
		return err
	}
	lane, err := peer.Lane(f.ID(0), "test")
	if err == nil {
		err = lane.Send(ctx, []byte("hang"))
	}
	if err != nil {
		return err
	}
	select {
	case <-hangs:
	case <-ctx.Done():
		return errors.New("the owner gets no frame")
	}
	looks := make(chan struct{})
	go func() { awaits <- a.region.Await(ctx, func() bool { close(looks); <-over; return true }) }()
	<-looks
	err = within(ctx, mendSlack, "operations on an owner whose program hangs",
		func(ctx context.Context) error {
			into := make([]byte, 4096)
			for i := range uint64(50) {
				operation := a.writeTo(0, wordsOf(make([]byte, 4096), i))
				operation.Ring = true
				if err := a.do(ctx, operation, a.readFrom(0, into)); err != nil ||
					wordAt(into, 4088) != i {
					return fmt.Errorf("round %d gives %d, error %w", i, wordAt(into, 4088), err)
				}
			}
			return nil
		})
	close(over)
	return errors.Join(err, <-awaits)
}

// checkHangingMember: while the fabric makes a member hang, its memory can be read and written, or
// operations on it end. The member works again when it resumes.
func checkHangingMember(ctx context.Context, f Fabric) error {
	hanger, ok := f.(ProgramStopper)
	if !ok {
		return errSkip
	}
	_, _, a, err := sharePair(ctx, f, 64, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	hanger.Hang(0)
	into := make([]byte, 8)
	err = within(ctx, mendSlack, "operations on a member that hangs",
		func(ctx context.Context) error {
			for i := range uint64(20) {
				if err := a.do(ctx, a.writeTo(8, wordBytes(i)), a.readFrom(8, into)); err != nil ||
					wordAt(into, 0) != i {
					return fmt.Errorf("round %d gives %d, error %w", i, wordAt(into, 0), err)
				}
			}
			return nil
		})
	hanger.Resume(0)
	if err != nil {
		return err
	}
	if a.region.Load(8) != 19 {
		return errors.New("what was written while the member hung is not there")
	}
	return a.do(ctx, a.writeTo(8, wordBytes(20)))
}
