package fabrictest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// ProgramStopper is implemented by a Fabric that can stop a member's program while its host lives.
type ProgramStopper interface {
	// Hang stops the program of member i until Resume. Only the provider itself keeps working
	// there.
	Hang(i int)
	// Resume undoes Hang.
	Resume(i int)
}

// RunRegions runs every case of regions against the provider, in parallel. The provider's hosts
// must implement rdmanet.RegionHost.
func RunRegions(t *testing.T, factory Factory) { run(t, factory, RegionCases()) }

// RegionCases returns the suite of regions: the guarantees of the memory contract.
func RegionCases() []Case {
	return []Case{
		{"write and read", Config{Members: 2}, checkWriteRead},
		{"words", Config{Members: 3}, checkWords},
		{"canary seen by the owner", Config{Members: 2}, checkCanaryHere},
		{"canary seen from afar", Config{Members: 3}, checkCanaryAfar},
		{"operations in order", Config{Members: 3}, checkOperationOrder},
		{"completions in order", Config{Members: 2}, checkCompletionOrder},
		{"batch to many", Config{Members: 6}, checkBatch},
		{"everybody at once", Config{Members: 4}, checkEverybody},
		{"inline bytes", Config{Members: 2}, checkInline},
		{"bounds", Config{Members: 2}, checkBounds},
		{"names and sizes", Config{Members: 2, MendTimeout: mendLong}, checkNamesAndSizes},
		{"permissions", Config{Members: 2}, checkPermissions},
		{"revoke", Config{Members: 3}, checkRevoke},
		{"revoke under many regions", Config{Members: 2}, checkRevokeOne},
		{"grant again", Config{Members: 2}, checkRegrant},
		{"no gap", Config{Members: 2}, checkGap},
		{"severed", Config{Members: 2, MendTimeout: mendLong}, checkSeveredWriter},
		{"one life", Config{Members: 2, MendTimeout: mendLong}, checkOneLife},
		{"dead owner", Config{Members: 3, MendTimeout: mendShort}, checkDeadOwner},
		{"absent owner", Config{Members: 2, MendTimeout: mendShort}, checkAbsentOwner},
		{"owner that restarts", Config{Members: 2, MendTimeout: mendShort}, checkOwnerRestarts},
		{"cut that heals", Config{Members: 2, MendTimeout: 4 * time.Second, Cuts: true},
			checkCutHeals},
		{"cut that stays", Config{Members: 3, MendTimeout: mendShort, Cuts: true}, checkCutStays},
		{"revoke behind a cut", Config{Members: 2, MendTimeout: 4 * time.Second, Cuts: true},
			checkRevokeBehindCut},
		{"owner whose program hangs", Config{Members: 2}, checkHangingProgram},
		{"member that hangs", Config{Members: 2}, checkHangingMember},
		{"queue full", Config{Members: 2}, checkQueueFull},
		{"queue closed", Config{Members: 2}, checkQueueClosed},
		{"attachment closed", Config{Members: 2}, checkAttachmentClosed},
		{"region closed", Config{Members: 2}, checkRegionClosed},
		{"host closed", Config{Members: 2, MendTimeout: mendShort}, checkHostClosed},
		{"close under load", Config{Members: 4, MendTimeout: mendShort}, checkCloseUnderLoad},
		{"await", Config{Members: 2}, checkAwait},
		{"await rests", Config{Members: 2}, checkAwaitRests},
		{"stranger at regions", Config{Members: 1, MendTimeout: mendShort}, checkRegionStranger},
	}
}

// startRegions starts the first members of the fabric.
func startRegions(f Fabric, members int) ([]rdmanet.RegionHost, error) {
	hosts := make([]rdmanet.RegionHost, members)
	for i := range hosts {
		var err error
		if hosts[i], err = startRegionHost(f, i); err != nil {
			return nil, err
		}
	}
	return hosts, nil
}

func startRegionHost(f Fabric, i int) (rdmanet.RegionHost, error) {
	h, err := f.Start(i)
	if err != nil {
		return nil, err
	}
	host, ok := h.(rdmanet.RegionHost)
	if !ok {
		return nil, errors.New("the provider's hosts have no regions")
	}
	return host, nil
}

// access is a region at its owner, with a peer's attachment to it.
type access struct {
	region     rdmanet.Region
	attachment rdmanet.Attachment
	*poster
}

// share exposes a region at the owner, grants it to the peer, and attaches.
func share(ctx context.Context, owner, peer rdmanet.RegionHost, name string, size int,
	permission rdmanet.Permission) (access, error) {
	region, err := owner.Expose(name, size)
	if err != nil {
		return access{}, fmt.Errorf("expose: %w", err)
	}
	return join(ctx, region, owner, peer, permission)
}

// join grants a region to another peer, and attaches that peer.
func join(ctx context.Context, region rdmanet.Region, owner, peer rdmanet.RegionHost,
	permission rdmanet.Permission) (access, error) {
	if err := region.Grant(peerOf(peer), permission); err != nil {
		return access{}, fmt.Errorf("grant: %w", err)
	}
	attachment, err := peer.Attach(ctx, owner.ID(), region.Name())
	if err != nil {
		return access{}, fmt.Errorf("attach: %w", err)
	}
	if attachment.Peer() != peerOf(owner) || attachment.Name() != region.Name() ||
		attachment.Size() != region.Size() ||
		attachment.Permission() != permission || attachment.Err() != nil {
		return access{}, fmt.Errorf("attached to %s %q of %d bytes, %s, error %v",
			attachment.Peer(), attachment.Name(), attachment.Size(),
			attachment.Permission(), attachment.Err())
	}
	p, err := newPoster(peer)
	return access{region, attachment, p}, err
}

// sharePair calls share for the first two members: member 0 owns the region, member 1 attaches.
func sharePair(ctx context.Context, f Fabric, size int, permission rdmanet.Permission) (owner,
	peer rdmanet.RegionHost, a access, err error) {
	hosts, err := startRegions(f, 2)
	if err != nil {
		return nil, nil, access{}, err
	}
	a, err = share(ctx, hosts[0], hosts[1], "test", size, permission)
	return hosts[0], hosts[1], a, err
}

// postDepth is the depth of a poster's queue.
const postDepth = 64

// poster is a queue that checks its completions: every operation completes once, and those of a
// peer in the order of posting. One goroutine uses it.
type poster struct {
	queue  rdmanet.Queue
	tag    uint64
	posted map[rdmanet.PeerID][]uint64 // tags that await completion
	into   [postDepth]rdmanet.Completion
}

func newPoster(host rdmanet.RegionHost) (*poster, error) {
	queue, err := host.Queue(postDepth)
	return &poster{queue: queue, posted: make(map[rdmanet.PeerID][]uint64)}, err
}

// post posts operations, with tags of its own.
func (p *poster) post(operations ...rdmanet.Operation) error {
	for i := range operations {
		operations[i].Tag = p.tag + 1 + uint64(i)
	}
	if err := p.queue.Post(operations...); err != nil {
		return fmt.Errorf("post: %w", err)
	}
	p.tag += uint64(len(operations))
	for _, operation := range operations {
		id := operation.To.Peer().ID
		p.posted[id] = append(p.posted[id], operation.Tag)
	}
	return nil
}

// outstanding returns the number of operations that await completion.
func (p *poster) outstanding() int {
	n := 0
	for _, tags := range p.posted {
		n += len(tags)
	}
	return n
}

// take waits for completions and checks them.
func (p *poster) take(ctx context.Context) ([]rdmanet.Completion, error) {
	if outstanding := p.queue.Outstanding(); outstanding != p.outstanding() {
		return nil, fmt.Errorf("the queue counts %d operations outstanding, %d are", outstanding,
			p.outstanding())
	}
	n, err := p.queue.Wait(ctx, p.into[:])
	if err != nil {
		return nil, fmt.Errorf("%d completions are missing: %w", p.outstanding(), err)
	}
	for _, completion := range p.into[:n] {
		tags := p.posted[completion.Peer]
		if len(tags) == 0 {
			return nil, fmt.Errorf("completion %d of %q, which has no operation outstanding",
				completion.Tag, completion.Peer)
		}
		if tags[0] != completion.Tag {
			return nil, fmt.Errorf("completion %d of %q comes before that of operation %d",
				completion.Tag, completion.Peer, tags[0])
		}
		p.posted[completion.Peer] = tags[1:]
	}
	return p.into[:n], nil
}

// drain takes all outstanding completions and returns the first error among them.
func (p *poster) drain(ctx context.Context) error {
	var first error
	for p.outstanding() > 0 {
		completions, err := p.take(ctx)
		if err != nil {
			return err
		}
		for _, completion := range completions {
			if first == nil {
				first = completion.Err
			}
		}
	}
	return first
}

// do performs operations, waits for all of them and returns the first error.
func (p *poster) do(ctx context.Context, operations ...rdmanet.Operation) error {
	if err := p.post(operations...); err != nil {
		return err
	}
	return p.drain(ctx)
}

// stream keeps the queue full of operations that next makes, until one completes with an error.
// Then it takes the rest, which must have the same error. It returns the number of operations that
// completed without an error, and the error.
func (p *poster) stream(ctx context.Context, next func(i uint64) rdmanet.Operation) (done uint64,
	err error) {
	var ended error
	posted := uint64(0)
	for {
		if err := ctx.Err(); err != nil {
			return done, fmt.Errorf("after %d operations a stream does not end: %w", done, err)
		}
		for ended == nil && p.outstanding() < postDepth {
			if err := p.post(next(posted)); err != nil {
				return done, err
			}
			posted++
		}
		if p.outstanding() == 0 {
			return done, ended
		}
		completions, err := p.take(ctx)
		if err != nil {
			return done, err
		}
		for _, completion := range completions {
			switch {
			case completion.Err == nil && ended == nil:
				done++
			case completion.Err == nil:
				return done, fmt.Errorf("an operation succeeded behind one that failed with: %w",
					ended)
			case ended == nil:
				ended = completion.Err
			case !sameKind(ended, completion.Err):
				return done,
					fmt.Errorf("an operation failed with %q behind one that failed with %q",
						completion.Err, ended)
			}
		}
	}
}

// regionErrors are the errors with which operations complete.
var regionErrors = []error{rdmanet.ErrAccess, rdmanet.ErrBounds, rdmanet.ErrUnreachable,
	rdmanet.ErrReset, rdmanet.ErrClosed, rdmanet.ErrNotMember}

// sameKind reports whether two errors match the same errors of the fabric.
func sameKind(a, b error) bool {
	for _, kind := range regionErrors {
		if errors.Is(a, kind) != errors.Is(b, kind) {
			return false
		}
	}
	return true
}

// wantOneOf is like want with several wanted errors.
func wantOneOf(what string, err error, wanted ...error) error {
	for _, w := range wanted {
		if errors.Is(err, w) {
			return nil
		}
	}
	return fmt.Errorf("%s: %v, want one of %v", what, err, wanted)
}

// writeTo and readFrom make operations on the attachment.
func (a access) writeTo(offset int, bytes []byte) rdmanet.Operation {
	return rdmanet.Operation{To: a.attachment, Kind: rdmanet.OperationWrite, Offset: offset,
		Bytes: bytes}
}

func (a access) readFrom(offset int, into []byte) rdmanet.Operation {
	return rdmanet.Operation{To: a.attachment, Kind: rdmanet.OperationRead, Offset: offset,
		Bytes: into}
}

// wordBytes returns the bytes of a word as Load sees it.
func wordBytes(word uint64) []byte { return binary.NativeEndian.AppendUint64(nil, word) }

// wordsOf fills bytes with repetitions of one word.
func wordsOf(bytes []byte, word uint64) []byte {
	for i := 0; i+rdmanet.WordSize <= len(bytes); i += rdmanet.WordSize {
		binary.NativeEndian.PutUint64(bytes[i:], word)
	}
	return bytes
}

// wordAt returns the word at an offset.
func wordAt(bytes []byte, offset int) uint64 { return binary.NativeEndian.Uint64(bytes[offset:]) }

// sample copies a region word by word, which its owner may do at any time.
func sample(region rdmanet.Region, into []byte) []byte {
	into = into[:0]
	for i := 0; i < region.Size(); i += rdmanet.WordSize {
		into = binary.NativeEndian.AppendUint64(into, region.Load(i))
	}
	return into
}

// stressTime is how long a case runs random interleavings.
const stressTime = 150 * time.Millisecond
