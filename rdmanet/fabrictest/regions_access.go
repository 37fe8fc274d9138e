package fabrictest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// checkBounds: a call with an operation that reaches past its region is refused as a whole. So is a
// call with an invalid operation.
func checkBounds(ctx context.Context, f Fabric) error {
	const size = 64
	_, _, a, err := sharePair(ctx, f, size, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	full := bytes.Repeat([]byte{0xff}, size+1)
	for _, bad := range []rdmanet.Operation{
		a.writeTo(size-7, full[:8]), a.writeTo(size+1, nil), a.writeTo(-1, full[:8]),
		a.writeTo(-8, full[:8]), a.writeTo(0, full), a.writeTo(math.MaxInt, full[:1]),
		a.writeTo(math.MaxInt-3, full[:8]), a.writeTo(math.MinInt, full[:8]),
		a.readFrom(size-7, make([]byte, 8)), a.readFrom(-1, make([]byte, 8)),
		a.readFrom(math.MaxInt, make([]byte, 8)),
	} {
		err := a.queue.Post(a.writeTo(0, full[:8]), bad, a.writeTo(8, full[:8]))
		if err := want(fmt.Sprintf("a %s of %d bytes at %d of %d", bad.Kind, len(bad.Bytes),
			bad.Offset, size), err, rdmanet.ErrBounds); err != nil {
			return err
		}
	}
	for _, bad := range []rdmanet.Operation{{To: a.attachment}, {To: a.attachment, Kind: 77},
		{Kind: rdmanet.OperationWrite}} {
		if err := a.queue.Post(a.writeTo(0, full[:8]), bad); err == nil {
			return fmt.Errorf("an operation of %s on %v was posted", bad.Kind, bad.To)
		}
	}
	if n := a.queue.Outstanding(); n != 0 {
		return fmt.Errorf("%d operations are outstanding, and all were refused", n)
	}
	if err := a.do(ctx, a.writeTo(size-1, full[:1]), a.writeTo(size, nil)); err != nil {
		return fmt.Errorf("behind refused calls: %w", err)
	}
	if !bytes.Equal(a.region.Bytes()[:size-1], make([]byte, size-1)) {
		return fmt.Errorf("of calls that were refused something took place: %x", a.region.Bytes())
	}
	return nil
}

// checkNamesAndSizes: invalid names and sizes of regions and queues are refused.
func checkNamesAndSizes(ctx context.Context, f Fabric) error {
	hosts, err := startRegions(f, 2)
	if err != nil {
		return err
	}
	owner, peer := hosts[0], hosts[1]
	long := strings.Repeat("n", rdmanet.RegionNameMax+1)
	for _, bad := range []struct {
		name string
		size int
		err  error
	}{{"", 64, rdmanet.ErrRegionName}, {long, 64, rdmanet.ErrRegionName},
		{"x", 0, rdmanet.ErrTooLarge}, {"x", -8, rdmanet.ErrTooLarge},
		{"x", 63, rdmanet.ErrTooLarge}, {"x", rdmanet.RegionSizeMax + 8, rdmanet.ErrTooLarge}} {
		_, err := owner.Expose(bad.name, bad.size)
		if err := want(fmt.Sprintf("a region of %d bytes with a name of %d", bad.size,
			len(bad.name)), err, bad.err); err != nil {
			return err
		}
	}
	for _, name := range []string{"", long} {
		_, err := peer.Attach(ctx, owner.ID(), name)
		if err := want("attaching to a bad name", err, rdmanet.ErrRegionName); err != nil {
			return err
		}
	}
	for _, depth := range []int{0, -1, rdmanet.QueueDepthMax + 1} {
		_, err := owner.Queue(depth)
		if err := want(fmt.Sprintf("a queue of depth %d", depth),
			err, rdmanet.ErrTooLarge); err != nil {
			return err
		}
	}
	if err := within(ctx, mendSlack, "attaching to what is not exposed",
		func(ctx context.Context) error {
			_, err := peer.Attach(ctx, owner.ID(), "none")
			return want("attaching to what is not exposed", err, rdmanet.ErrNoRegion)
		}); err != nil {
		return err
	}
	region, err := owner.Expose(long[1:], 8)
	if err != nil {
		return fmt.Errorf("the longest name and the smallest size: %w", err)
	}
	_, err = owner.Expose(long[1:], 8)
	if err := want("a second region of that name", err, rdmanet.ErrDuplicate); err != nil {
		return err
	}
	if err := region.Close(); err != nil {
		return err
	}
	a, err := share(ctx, owner, peer, long[1:], 16, rdmanet.PermissionReadWrite)
	if err != nil {
		return fmt.Errorf("a name that is free again: %w", err)
	}
	for _, at := range []int{-8, 16, 4, math.MaxInt - 7} {
		for what, touch := range map[string]func(){"Load": func() {
			a.region.Load(at)
		}, "Store": func() { a.region.Store(at, 1) }} {
			if at%rdmanet.WordSize == 0 && !panics(touch) {
				return fmt.Errorf("%s of a word at %d of a region of 16 bytes does not panic", what,
					at)
			}
		}
	}
	return a.do(ctx, a.writeTo(8, wordBytes(1)))
}

func panics(work func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	work()
	return false
}

// checkPermissions: a peer may perform the operations that it was granted, and its attachment ends
// with the first other one.
func checkPermissions(ctx context.Context, f Fabric) error {
	hosts, err := startRegions(f, 2)
	if err != nil {
		return err
	}
	owner, peer := hosts[0], hosts[1]
	region, err := owner.Expose("test", 64)
	if err != nil {
		return err
	}
	_, err = peer.Attach(ctx, owner.ID(), "test")
	if err := want("attaching without a grant", err, rdmanet.ErrAccess); err != nil {
		return err
	}
	reader, err := join(ctx, region, owner, peer, rdmanet.PermissionRead)
	if err != nil {
		return err
	}
	region.Store(8, 77)
	into := make([]byte, 8)
	if err := reader.do(ctx, reader.readFrom(8, into)); err != nil || wordAt(into, 0) != 77 {
		return fmt.Errorf("a reader reads %d, error %w", wordAt(into, 0), err)
	}
	// Granting the same permission again changes nothing.
	if err := region.Grant(peerOf(peer), rdmanet.PermissionRead); err != nil {
		return err
	}
	if err := reader.do(ctx, reader.readFrom(8, into)); err != nil {
		return fmt.Errorf("a reader that was granted the same again: %w", err)
	}
	if err := want("a write of a reader", reader.do(ctx, reader.writeTo(8, wordBytes(1))),
		rdmanet.ErrAccess); err != nil {
		return err
	}
	if err := want("a read behind it", reader.do(ctx, reader.readFrom(8, into)),
		rdmanet.ErrAccess); err != nil {
		return err
	}
	if err := want("the attachment", reader.attachment.Err(), rdmanet.ErrAccess); err != nil {
		return err
	}
	writer, err := join(ctx, region, owner, peer, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	if err := writer.do(ctx, writer.writeTo(16, wordBytes(5)),
		writer.readFrom(16, into)); err != nil || wordAt(into, 0) != 5 {
		return fmt.Errorf("a writer writes and reads %d, error %w", wordAt(into, 0), err)
	}
	if region.Load(8) != 77 || region.Load(16) != 5 {
		return fmt.Errorf("the owner sees %d and %d, want 77 and 5", region.Load(8),
			region.Load(16))
	}
	reader, err = join(ctx, region, owner, peer, rdmanet.PermissionRead)
	if err != nil {
		return err
	}
	if err := want("a read under the wider grant of before",
		writer.do(ctx, writer.readFrom(16, into)), rdmanet.ErrAccess); err != nil {
		return err
	}
	if err := reader.do(ctx, reader.readFrom(16, into)); err != nil {
		return err
	}
	if err := region.Revoke(peerOf(peer)); err != nil {
		return err
	}
	if err := want("a read after the revocation", reader.do(ctx, reader.readFrom(16, into)),
		rdmanet.ErrAccess); err != nil {
		return err
	}
	_, err = peer.Attach(ctx, owner.ID(), "test")
	return want("attaching after the revocation", err, rdmanet.ErrAccess)
}

// still is how long a region is watched to show that it does not change any more.
const still = 3 * time.Millisecond

// unchanged returns an error if a region changes.
func unchanged(ctx context.Context, region rdmanet.Region, before []byte, what string) error {
	now := make([]byte, 0, len(before))
	for until := time.Now().Add(still); ; {
		now = sample(region, now)
		for i := 0; i < len(before); i += 8 {
			if wordAt(before, i) != wordAt(now, i) {
				return fmt.Errorf("%s, and then word %d changed from %#x to %#x", what, i/8,
					wordAt(before, i), wordAt(now, i))
			}
		}
		if time.Now().After(until) {
			return nil
		}
		if err := pause(ctx, 100*time.Microsecond); err != nil {
			return err
		}
	}
}

// streaming writes to the whole region until a write fails, and then sends the error.
func (a access) streaming(ctx context.Context, size int) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := a.stream(ctx, func(i uint64) rdmanet.Operation {
			return a.writeTo(0, wordsOf(make([]byte, size), i+1))
		})
		ended <- err
	}()
	return ended
}

// flowing waits until writes land.
func flowing(ctx context.Context, region rdmanet.Region, ended <-chan error) error {
	before := region.Load(0)
	for region.Load(0) == before {
		select {
		case err := <-ended:
			return fmt.Errorf("the writer ended early: %w", err)
		default:
		}
		if err := pause(ctx, 20*time.Microsecond); err != nil {
			return errors.New("no write lands")
		}
	}
	return nil
}

// checkRevoke: once Revoke has returned, under a stream of writes, no byte of the peer lands, and
// its operations end with ErrAccess. Another peer's operations go on.
func checkRevoke(ctx context.Context, f Fabric) error {
	const size = 4096
	hosts, err := startRegions(f, 3)
	if err != nil {
		return err
	}
	region, err := hosts[0].Expose("test", size)
	if err != nil {
		return err
	}
	other, err := share(ctx, hosts[0], hosts[2], "other", size, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	otherEnded := other.streaming(ctx, size)
	for range 25 {
		a, err := join(ctx, region, hosts[0], hosts[1], rdmanet.PermissionReadWrite)
		if err != nil {
			return err
		}
		ended := a.streaming(ctx, size)
		if err := flowing(ctx, region, ended); err != nil {
			return err
		}
		if err := region.Revoke(peerOf(hosts[1])); err != nil {
			return err
		}
		before := sample(region, nil)
		if err := unchanged(ctx, region, before, "Revoke returned"); err != nil {
			return err
		}
		if err := within(ctx, mendSlack, "the revoked stream", func(context.Context) error {
			return <-ended
		}); !errors.Is(err, rdmanet.ErrAccess) {
			return fmt.Errorf("the revoked stream ends with: %w", err)
		}
		if err := unchanged(ctx, region, before,
			"Revoke returned and the stream ended"); err != nil {
			return err
		}
		if err := a.queue.Close(); err != nil {
			return err
		}
	}
	if err := flowing(ctx, other.region, otherEnded); err != nil {
		return fmt.Errorf("a peer that keeps its permission: %w", err)
	}
	if err := other.region.Revoke(peerOf(hosts[2])); err != nil {
		return err
	}
	return want("the other stream", <-otherEnded, rdmanet.ErrAccess)
}

// checkRevokeOne: revoking one region affects only that region.
func checkRevokeOne(ctx context.Context, f Fabric) error {
	const size = 256
	hosts, err := startRegions(f, 2)
	if err != nil {
		return err
	}
	goes, err := share(ctx, hosts[0], hosts[1], "goes", size, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	stays, err := share(ctx, hosts[0], hosts[1], "stays", size, rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	goesEnded, staysEnded := goes.streaming(ctx, size), stays.streaming(ctx, size)
	if err := errors.Join(flowing(ctx, goes.region, goesEnded),
		flowing(ctx, stays.region, staysEnded)); err != nil {
		return err
	}
	if err := goes.region.Revoke(peerOf(hosts[1])); err != nil {
		return err
	}
	if err := want("the revoked stream", <-goesEnded, rdmanet.ErrAccess); err != nil {
		return err
	}
	if err := flowing(ctx, stays.region, staysEnded); err != nil {
		return fmt.Errorf("the region that was not revoked: %w", err)
	}
	// One queue serves both regions: only operations on the revoked region fail.
	for range 10 {
		if err := want("the revoked region", goes.do(ctx, goes.writeTo(0, wordBytes(1))),
			rdmanet.ErrAccess); err != nil {
			return err
		}
		if err := goes.do(ctx, stays.writeTo(size-8, wordBytes(1))); err != nil {
			return err
		}
	}
	if err := stays.region.Revoke(peerOf(hosts[1])); err != nil {
		return err
	}
	return want("the second stream", <-staysEnded, rdmanet.ErrAccess)
}

// checkRegrant: operations posted under one grant do not take place under the next, even if the
// peer already has it. A peer that attaches again can work while its old operations fail.
func checkRegrant(ctx context.Context, f Fabric) error {
	const size = 4096
	hosts, err := startRegions(f, 2)
	if err != nil {
		return err
	}
	region, err := hosts[0].Expose("test", size)
	if err != nil {
		return err
	}
	a, err := join(ctx, region, hosts[0], hosts[1], rdmanet.PermissionReadWrite)
	if err != nil {
		return err
	}
	for range 25 {
		ended := a.streaming(ctx, size)
		if err := flowing(ctx, region, ended); err != nil {
			return err
		}
		if err := region.Revoke(peerOf(hosts[1])); err != nil {
			return err
		}
		if err := region.Grant(peerOf(hosts[1]), rdmanet.PermissionReadWrite); err != nil {
			return err
		}
		before := sample(region, nil)
		if err := unchanged(ctx, region, before,
			"the permission was revoked and granted again"); err != nil {
			return err
		}
		if err := want("the stream under the former grant", <-ended,
			rdmanet.ErrAccess); err != nil {
			return err
		}
		old := a
		if a, err = join(ctx, region, hosts[0], hosts[1], rdmanet.PermissionReadWrite); err != nil {
			return err
		}
		if err := want("a write under the former grant", old.do(ctx, old.writeTo(0, wordBytes(1))),
			rdmanet.ErrAccess); err != nil {
			return err
		}
		if err := unchanged(ctx, region, before,
			"an attachment under the former grant wrote"); err != nil {
			return err
		}
		region.Store(0, 0)
		if err := a.do(ctx, a.writeTo(8, wordBytes(3))); err != nil {
			return fmt.Errorf("a write under the new grant: %w", err)
		}
		if err := old.queue.Close(); err != nil {
			return err
		}
	}
	return nil
}

// checkGap: an attachment ends with its first operation that fails, even in the middle of a call.
// Operations posted behind it have no effect.
func checkGap(ctx context.Context, f Fabric) error {
	const words = 512
	hosts, err := startRegions(f, 2)
	if err != nil {
		return err
	}
	reader, err := share(ctx, hosts[0], hosts[1], "test", 8*words, rdmanet.PermissionRead)
	if err != nil {
		return err
	}
	var into [8]byte
	if err := reader.post(reader.readFrom(0, into[:]), reader.writeTo(0, wordBytes(1)),
		reader.readFrom(0, into[:]), reader.writeTo(8, wordBytes(1))); err != nil {
		return err
	}
	var got []error
	for reader.outstanding() > 0 {
		completions, err := reader.take(ctx)
		if err != nil {
			return err
		}
		for _, completion := range completions {
			got = append(got, completion.Err)
		}
	}
	for i, wanted := range []error{nil, rdmanet.ErrAccess, rdmanet.ErrAccess, rdmanet.ErrAccess} {
		if err := want(fmt.Sprintf("operation %d", i), got[i], wanted); err != nil {
			return err
		}
	}
	if reader.region.Load(0) != 0 || reader.region.Load(8) != 0 {
		return errors.New("what was denied, or was behind it, took place")
	}
	// Operation i writes word i. The landed operations are a prefix that includes all completed
	// ones.
	region := reader.region
	for range 25 {
		for i := range words {
			region.Store(8*i, 0)
		}
		a, err := join(ctx, region, hosts[0], hosts[1], rdmanet.PermissionReadWrite)
		if err != nil {
			return err
		}
		type end struct {
			done uint64
			err  error
		}
		ended := make(chan end, 1)
		go func() {
			done, err := a.stream(ctx, func(i uint64) rdmanet.Operation {
				return a.writeTo(int(i%words)*8, wordBytes(i+1))
			})
			ended <- end{done, err}
		}()
		for region.Load(8) == 0 {
			if err := pause(ctx, 20*time.Microsecond); err != nil {
				return err
			}
		}
		// Change the permission back and forth: a failure in between must remain final.
		for _, permission := range []rdmanet.Permission{rdmanet.PermissionRead,
			rdmanet.PermissionReadWrite, rdmanet.PermissionNone} {
			if err := region.Grant(peerOf(hosts[1]), permission); err != nil {
				return err
			}
		}
		e := <-ended
		if err := want("the stream", e.err, rdmanet.ErrAccess); err != nil {
			return err
		}
		if err := prefix(region, words, e.done); err != nil {
			return err
		}
		if err := a.queue.Close(); err != nil {
			return err
		}
	}
	return nil
}

// prefix checks a region in which operation i wrote i+1 to word i modulo words. All operations up
// to some operation must have landed, including the first done, and none behind it.
func prefix(region rdmanet.Region, words int, done uint64) error {
	last := uint64(0)
	for i := range words {
		last = max(last, region.Load(8*i))
	}
	if last < done {
		return fmt.Errorf("%d writes completed, and the last that landed is number %d", done, last)
	}
	for i := range words {
		// wanted is the greatest number that is not above last and belongs to the word.
		wanted := uint64(0)
		if last > uint64(i) {
			wanted = last - (last-1-uint64(i))%uint64(words)
		}
		if got := region.Load(8 * i); got != wanted {
			return fmt.Errorf("write %d landed, but word %d is of write %d and not %d: there is "+
				"a gap", last, i, got, wanted)
		}
	}
	return nil
}
