package fabrictest_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/fabrictest"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// regionFault describes the faults of a provider's regions. A nil field means no fault.
type regionFault struct {
	// rewrite returns the operations to perform instead of one. The last of them completes for all.
	rewrite func(rdmanet.Operation) []rdmanet.Operation
	// order returns the operations to post instead of those of one call.
	order func([]rdmanet.Operation) []rdmanet.Operation
	// refused handles operations that the provider refused with that error.
	refused func(rdmanet.Queue, []rdmanet.Operation, error) error
	// late delays operations until the caller asks for completions.
	late bool
	// completed returns the completions to hand out instead of the real ones.
	completed func(*faultyQueue, []rdmanet.Completion) []rdmanet.Completion
	// again reports whether to silently remake an attachment that ended with that error.
	again func(error) bool
	// identities makes grants hold for all incarnations of a peer.
	identities bool
	// revoke and await replace the region's own methods.
	revoke func(*faultyRegion, rdmanet.Peer) error
	await  func(*faultyRegion, context.Context, func() bool) error
}

// pieces splits a write.
func pieces(o rdmanet.Operation, size int, backward bool) []rdmanet.Operation {
	if o.Kind != rdmanet.OperationWrite || len(o.Bytes) <= size || len(o.Bytes) > 8<<10 {
		return []rdmanet.Operation{o}
	}
	var cut []rdmanet.Operation
	for at := 0; at < len(o.Bytes); at += size {
		piece := o
		piece.Offset, piece.Bytes = o.Offset+at, o.Bytes[at:min(at+size, len(o.Bytes))]
		cut = append(cut, piece)
	}
	if backward {
		slices.Reverse(cut)
	}
	return cut
}

// delayed makes each write complete at once, and take place with the next operation of its
// attachment.
func delayed() func(rdmanet.Operation) []rdmanet.Operation {
	var held rdmanet.Operation
	return func(o rdmanet.Operation) []rdmanet.Operation {
		perform := []rdmanet.Operation{o}
		if o.Kind == rdmanet.OperationWrite {
			perform[0].Bytes = nil
		}
		if held.To == o.To {
			perform = slices.Insert(perform, 0, held)
		}
		held = o
		return perform
	}
}

// TestPlantedRegionFaults proves that the suite of regions can fail, as TestPlantedFaults does for
// the suite of lanes.
func TestPlantedRegionFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range []struct {
		name  string
		found string
		plant regionFault
	}{
		{"torn write", "words", regionFault{rewrite: func(o rdmanet.Operation) []rdmanet.Operation {
			return pieces(o, 4, false)
		}}},
		{"write that lands backward", "canary seen by the owner",
			regionFault{rewrite: func(o rdmanet.Operation) []rdmanet.Operation {
				return pieces(o, 64, true)
			}}},
		{"write that lands backward, from afar", "canary seen from afar",
			regionFault{rewrite: func(o rdmanet.Operation) []rdmanet.Operation {
				return pieces(o, 64, true)
			}}},
		{"write of whole words only", "write and read",
			regionFault{rewrite: func(o rdmanet.Operation) []rdmanet.Operation {
				if o.Kind == rdmanet.OperationWrite && o.Offset+len(o.Bytes)+8 < o.To.Size() {
					o.Bytes = append(slices.Clone(o.Bytes), make([]byte, (8-len(o.Bytes)%8)%8)...)
				}
				return []rdmanet.Operation{o}
			}}},
		{"reads overtake writes", "operations in order",
			regionFault{order: func(operations []rdmanet.Operation) []rdmanet.Operation {
				// Their completions still come in order: the read takes place twice.
				var early []rdmanet.Operation
				for _, o := range operations {
					if o.Kind == rdmanet.OperationRead {
						o.Tag = 0
						early = append(early, o)
					}
				}
				for _, o := range operations {
					if o.Kind == rdmanet.OperationRead {
						o.Bytes = make([]byte, len(o.Bytes))
					}
					early = append(early, o)
				}
				return early
			}}},
		{"reordered completions", "completions in order",
			regionFault{completed: func(_ *faultyQueue,
				c []rdmanet.Completion) []rdmanet.Completion {
				if len(c) > 1 {
					c[0], c[1] = c[1], c[0]
				}
				return c
			}}},
		{"lost completion", "batch to many", regionFault{completed: func(q *faultyQueue,
			c []rdmanet.Completion) []rdmanet.Completion {
			if q.got += len(c); q.got == 1000 {
				c = c[:len(c)-1]
			}
			return c
		}}},
		{"completion that comes twice", "write and read",
			regionFault{completed: func(q *faultyQueue,
				c []rdmanet.Completion) []rdmanet.Completion {
				if q.got += len(c); q.got == 100 {
					c = append(c, c[0])
				}
				return c
			}}},
		{"completion that comes before its write landed", "write and read",
			regionFault{rewrite: delayed()}},
		{"operation that hangs on a dead peer", "dead owner",
			regionFault{completed: func(q *faultyQueue,
				c []rdmanet.Completion) []rdmanet.Completion {
				before := len(c)
				c = slices.DeleteFunc(c, func(c rdmanet.Completion) bool {
					return errors.Is(c.Err, rdmanet.ErrUnreachable)
				})
				q.hanging += before - len(c)
				return c
			}}},
		{"write that lands after Revoke", "revoke", regionFault{revoke: revokeLater}},
		{"write that lands after Revoke, behind a cut", "revoke behind a cut",
			regionFault{revoke: func(*faultyRegion, rdmanet.Peer) error {
				return nil
			}}},
		{"stale permission after a new grant", "grant again",
			regionFault{again: func(err error) bool {
				return errors.Is(err, rdmanet.ErrAccess)
			}}},
		{"attachment that survives its failure", "permissions",
			regionFault{again: func(err error) bool {
				return errors.Is(err, rdmanet.ErrAccess)
			}}},
		{"attachment that leads to the next life", "owner that restarts",
			regionFault{again: func(err error) bool {
				return err != nil
			}}},
		{"grant to an identity", "one life", regionFault{identities: true}},
		{"call that is posted in part", "bounds",
			regionFault{refused: func(q rdmanet.Queue, operations []rdmanet.Operation,
				err error) error {
				return errors.Join(err, q.Post(operations[0]))
			}}},
		{"call that is cut to the room", "queue full",
			regionFault{refused: func(q rdmanet.Queue, operations []rdmanet.Operation,
				err error) error {
				for _, o := range operations {
					if q.Post(o) != nil {
						break
					}
				}
				return err
			}}},
		{"inline bytes that are read late", "inline bytes", regionFault{late: true}},
		{"writes that do not ring", "await",
			regionFault{rewrite: func(o rdmanet.Operation) []rdmanet.Operation {
				o.Ring = false
				return []rdmanet.Operation{o}
			}}},
		{"waiting that burns", "await rests",
			regionFault{await: func(r *faultyRegion, ctx context.Context, ready func() bool) error {
				for !ready() && ctx.Err() == nil {
					runtime.Gosched()
				}
				return ctx.Err()
			}}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(fabrictest.RegionCases(), func(c fabrictest.Case) bool {
				return c.Name == fault.found
			})
			if i < 0 {
				t.Fatalf("there is no case %q", fault.found)
			}
			c := fabrictest.RegionCases()[i]
			limit := 20 * time.Second
			if fault.found == "await" {
				limit = 2 * time.Second // it waits for a ring that never comes
			}
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			// Some faults show only by chance, and on a busy machine not at once.
			for attempt := 1; ctx.Err() == nil; attempt++ {
				if err := c.Check(ctx, &faultyRegions{newFaultyFabric(t, c.Config,
					nil).(*faultyFabric), &fault.plant, t}); err != nil {
					t.Logf("case %q says, attempt %d: %v", c.Name, attempt, err)
					return
				}
			}
			t.Fatalf("case %q does not find the fault", c.Name)
		})
	}
}

// revokeLater is a Revoke that does not wait for its effect.
func revokeLater(r *faultyRegion, peer rdmanet.Peer) error {
	done := make(chan error, 1)
	go func() {
		time.Sleep(2 * time.Millisecond)
		done <- r.Region.Revoke(peer)
	}()
	r.t.Cleanup(func() { <-done })
	return nil
}

// faultyRegions is a memory network whose hosts have faulty regions.
type faultyRegions struct {
	*faultyFabric
	fault *regionFault
	t     testing.TB
}

func (f *faultyRegions) Start(i int) (rdmanet.Host, error) {
	h, err := f.faultyFabric.Start(i)
	if err != nil {
		return nil, err
	}
	return &faultyRegionHost{RegionHost: h.(*faultyHost).Host.(*memory.Host), fabric: f}, nil
}

type faultyRegionHost struct {
	rdmanet.RegionHost
	fabric *faultyRegions
}

func (h *faultyRegionHost) Expose(name string, size int) (rdmanet.Region, error) {
	region, err := h.RegionHost.Expose(name, size)
	if err != nil {
		return nil, err
	}
	r := &faultyRegion{Region: region, fault: h.fabric.fault, t: h.fabric.t}
	grants.Store(grantKey{h.fabric, h.ID(), name}, r)
	return r, nil
}

// grants maps the regions of a fabric, for the fault that makes owners ignore incarnations.
var grants sync.Map

type grantKey struct {
	fabric *faultyRegions
	owner  rdmanet.PeerID
	name   string
}

func (h *faultyRegionHost) Attach(ctx context.Context, peer rdmanet.PeerID,
	name string) (rdmanet.Attachment, error) {
	if r, ok := grants.Load(grantKey{h.fabric, peer, name}); ok && h.fabric.fault.identities {
		r.(*faultyRegion).admit(rdmanet.Peer{ID: h.ID(), Incarnation: h.Incarnation()})
	}
	a, err := h.RegionHost.Attach(ctx, peer, name)
	if err != nil {
		return nil, err
	}
	return &faultyAttachment{Attachment: a, host: h}, nil
}

func (h *faultyRegionHost) Queue(depth int) (rdmanet.Queue, error) {
	q, err := h.RegionHost.Queue(depth)
	if err != nil {
		return nil, err
	}
	return &faultyQueue{Queue: q, fault: h.fabric.fault}, nil
}

type faultyRegion struct {
	rdmanet.Region
	fault *regionFault
	t     testing.TB

	mu      sync.Mutex
	granted map[rdmanet.PeerID]rdmanet.Permission
}

func (r *faultyRegion) Grant(peer rdmanet.Peer, permission rdmanet.Permission) error {
	r.mu.Lock()
	if r.granted == nil {
		r.granted = make(map[rdmanet.PeerID]rdmanet.Permission)
	}
	r.granted[peer.ID] = permission
	r.mu.Unlock()
	return r.Region.Grant(peer, permission)
}

func (r *faultyRegion) admit(peer rdmanet.Peer) {
	r.mu.Lock()
	permission := r.granted[peer.ID]
	r.mu.Unlock()
	if err := r.Region.Grant(peer, permission); err != nil {
		r.t.Error(err)
	}
}

func (r *faultyRegion) Revoke(peer rdmanet.Peer) error {
	if r.fault.revoke == nil {
		return r.Grant(peer, rdmanet.PermissionNone)
	}
	return r.fault.revoke(r, peer)
}

func (r *faultyRegion) Await(ctx context.Context, ready func() bool) error {
	if r.fault.await == nil {
		return r.Region.Await(ctx, ready)
	}
	return r.fault.await(r, ctx, ready)
}

// faultyAttachment is an attachment that may be remade without the caller's knowledge.
type faultyAttachment struct {
	rdmanet.Attachment
	host *faultyRegionHost
}

func (a *faultyAttachment) sound() rdmanet.Attachment {
	if again := a.host.fabric.fault.again; again != nil && again(a.Attachment.Err()) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if anew, err := a.host.RegionHost.Attach(ctx, a.Peer().ID, a.Name()); err == nil {
			a.Attachment = anew
		}
	}
	return a.Attachment
}

// faultyQueue unwraps attachments, and applies the fault to posts and completions. Operations with
// tag 0 are its own.
type faultyQueue struct {
	rdmanet.Queue
	fault *regionFault

	mu      sync.Mutex
	own     int // outstanding operations that the caller does not know of
	hanging int
	got     int // completions
	held    []rdmanet.Operation
}

func (q *faultyQueue) Post(operations ...rdmanet.Operation) error {
	var posted []rdmanet.Operation
	own := 0
	for _, o := range operations {
		if a, ok := o.To.(*faultyAttachment); ok {
			o.To = a.sound()
		}
		cut := []rdmanet.Operation{o}
		if q.fault.rewrite != nil {
			cut = q.fault.rewrite(o)
		}
		for i := range cut[:len(cut)-1] {
			cut[i].Tag = 0
		}
		own += len(cut) - 1
		posted = append(posted, cut...)
	}
	if q.fault.order != nil {
		posted = q.fault.order(posted)
		own += len(posted) - len(operations)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fault.late {
		q.held = append(q.held, posted...)
		return nil
	}
	return q.post(posted, own)
}

// post posts operations. If the fault turned one operation into several, it posts them one at a
// time, so that others can see the states in between.
func (q *faultyQueue) post(posted []rdmanet.Operation, own int) error {
	if own > 0 && q.fault.rewrite != nil {
		for _, o := range posted[:len(posted)-1] {
			var into [1]rdmanet.Completion
			if err := q.Queue.Post(o); err != nil {
				return err
			}
			if n, err := q.Queue.Wait(context.Background(), into[:]); n != 1 || err != nil {
				return err
			}
			runtime.Gosched()
		}
		return q.Queue.Post(posted[len(posted)-1])
	}
	if err := q.Queue.Post(posted...); err != nil {
		if q.fault.refused != nil {
			return q.fault.refused(q.Queue, posted, err)
		}
		return err
	}
	q.own += own
	return nil
}

func (q *faultyQueue) Wait(ctx context.Context, into []rdmanet.Completion) (int, error) {
	q.mu.Lock()
	held := q.held
	q.held = nil
	if len(held) > 0 {
		if err := q.post(held, 0); err != nil {
			q.mu.Unlock()
			return 0, err
		}
	}
	q.mu.Unlock()
	for {
		n, err := q.Queue.Wait(ctx, into)
		if err != nil {
			return n, err
		}
		q.mu.Lock()
		got := slices.DeleteFunc(slices.Clone(into[:n]), func(c rdmanet.Completion) bool {
			return c.Tag == 0
		})
		q.own -= n - len(got)
		if q.fault.completed != nil && len(got) > 0 {
			got = q.fault.completed(q, got)
		}
		q.mu.Unlock()
		if len(got) > 0 {
			return copy(into, got), nil
		}
	}
}

func (q *faultyQueue) Outstanding() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.Queue.Outstanding() - q.own + q.hanging + len(q.held)
}
