//go:build verbs

package verbs

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/segment"
	"github.com/ledgerd/ledgerd/rdmanet/verbs/ibverbs"
)

// trialTimeout bounds each step of the trial.
const trialTimeout = 2 * time.Second

// witness is a link owner that only records how a request ended.
type witness struct{ ended chan error }

func (w witness) progressed(uint64) { w.tell(nil) }
func (w witness) rung()             {}
func (w witness) broke(err error)   { w.tell(err) }

func (w witness) tell(err error) {
	select {
	case w.ended <- err:
	default:
	}
}

func (w witness) wait() error {
	select {
	case err := <-w.ended:
		return err
	case <-time.After(trialTimeout):
		return errDeadline
	}
}

// try checks whether the device works, by writing to this host's own memory, and chooses the method
// of withdrawing permissions.
func (e *engine) try(wanted Permissions, prove func(*engine, Permissions) error) error {
	if err := e.tryDevice(); err != nil {
		return err
	}
	e.method = PermissionsQueuePair
	for _, method := range methods {
		if wanted != PermissionsAuto && wanted != method {
			continue
		}
		if err := prove(e, method); err != nil {
			e.refused = append(e.refused, fmt.Errorf("permissions by %s: %w", method, err))
			continue
		}
		e.method = method
		break
	}
	return nil
}

func (e *engine) tryDevice() error {
	memory, err := segment.New(2 * rdmanet.WordSize)
	if err != nil {
		return err
	}
	domain, err := e.context.NewDomain()
	if err != nil {
		return err
	}
	registered, err := domain.Register(memory.Bytes(),
		ibverbs.AccessLocalWrite|ibverbs.AccessRemoteWrite)
	if err != nil {
		return errors.Join(err, domain.Close())
	}
	err = e.tryWrite(domain, memory, registered)
	return errors.Join(err, registered.Close(), domain.Close())
}

func (e *engine) tryWrite(domain *ibverbs.Domain, memory *segment.Segment,
	registered *ibverbs.Memory) error {
	owner, writer := witness{make(chan error, 1)}, witness{make(chan error, 1)}
	in, err := e.newLink(domain, owner, 1, 1, ibverbs.AccessRemoteWrite)
	if err != nil {
		return err
	}
	defer in.destroy()
	out, err := e.newLink(domain, writer, 4, 0, 0)
	if err != nil {
		return err
	}
	defer out.destroy()
	if err := errors.Join(in.connect(out.endpoint()), out.connect(in.endpoint())); err != nil {
		return err
	}
	base := address(memory.Bytes())
	write := []ibverbs.Request{{Local: base, Remote: base + rdmanet.WordSize,
		Length: rdmanet.WordSize, LocalKey: registered.LocalKey(),
		RemoteKey: registered.RemoteKey(),
		Opcode:    ibverbs.OpcodeWrite}}
	memory.Store(0, 1)
	if _, err := out.post(write); err != nil {
		return err
	}
	if err := writer.wait(); err != nil || memory.Load(rdmanet.WordSize) != 1 {
		return fmt.Errorf("a write to this host's own memory does not arrive: %w", err)
	}
	return nil
}

// Parameters of the trials of a method: their number, the bytes of each write, and the writes under
// way.
const (
	fenceTrials      = 32
	fenceTrialBytes  = 16 << 10
	fenceTrialFlight = 8
	// fenceTrialRest is how long the memory must remain unchanged after a fence.
	fenceTrialRest = 300 * time.Microsecond
)

var (
	errLate     = errors.New("a write landed after the permission was taken back")
	errEmulated = errors.New("a device in software may place packets accepted earlier, at any " +
		"later time")
	errNoWindow = errors.New("the device has no memory windows of type 2")
)

// proven caches the results of trials, an error or nil, by device and method. They do not change
// while a process runs.
var proven sync.Map

// prove checks whether a method of withdrawing permissions holds on this device, by trials with
// writes under way. A device in software checks and places a packet in two steps, between which it
// may be delayed. So passing all trials proves little for it, and prove rejects it without trials.
func (e *engine) prove(method Permissions) error {
	key := [2]string{e.context.Name(), string(method)}
	if known, ok := proven.Load(key); ok {
		err, _ := known.(error)
		return err
	}
	err := errEmulated
	if !e.context.Emulated() {
		late := 0
		if late, err = e.tryFences(method, fenceTrials); err == nil && late > 0 {
			err = fmt.Errorf("%w, in %d trials of %d", errLate, late, fenceTrials)
		}
	}
	proven.Store(key, err)
	return err
}

// tryFences withdraws a right while writes are under way, and counts the trials in which a write
// landed later.
func (e *engine) tryFences(method Permissions, trials int) (late int, err error) {
	if method == PermissionsMemoryWindow && e.limits.WindowsMax == 0 {
		return 0, errNoWindow
	}
	memory, err := segment.New(fenceTrialBytes * (1 + fenceTrialFlight))
	if err != nil {
		return 0, err
	}
	domain, err := e.context.NewDomain()
	if err != nil {
		return 0, err
	}
	access := ibverbs.AccessLocalWrite | ibverbs.AccessRemoteWrite
	if method == PermissionsMemoryWindow {
		access |= ibverbs.AccessWindows
	}
	registered, err := domain.Register(memory.Bytes(), access)
	if err != nil {
		return 0, errors.Join(err, domain.Close())
	}
	// Part k+1 of the memory holds the bytes that write k writes repeatedly to part 0.
	for k := range fenceTrialFlight {
		for i := 0; i < fenceTrialBytes; i += rdmanet.WordSize {
			memory.Store(fenceTrialBytes*(1+k)+i, uint64(k)+1)
		}
	}
	for trial := 0; trial < trials && err == nil; trial++ {
		var one bool
		if one, err = e.tryFence(method, domain, memory, registered); one {
			late++
		}
	}
	return late, errors.Join(err, registered.Close(), domain.Close())
}

// tryFence runs one trial.
func (e *engine) tryFence(method Permissions, domain *ibverbs.Domain, memory *segment.Segment,
	registered *ibverbs.Memory) (late bool, err error) {
	owner := &guarded{}
	if owner.guard, err = e.newGuard(domain, owner, method, 1,
		ibverbs.AccessRemoteWrite); err != nil {
		return false, err
	}
	defer owner.link.destroy()
	writer := &hose{}
	if writer.link, err = e.newLink(domain, writer, fenceTrialFlight, 0, 0); err != nil {
		return false, err
	}
	defer writer.link.destroy()
	if err := errors.Join(owner.open(writer.link.endpoint(), registered, ibverbs.AccessRemoteWrite),
		writer.link.connect(owner.link.endpoint())); err != nil {
		return false, err
	}
	base := address(memory.Bytes())
	for k := range fenceTrialFlight {
		writer.requests = append(writer.requests, ibverbs.Request{Opcode: ibverbs.OpcodeWrite,
			Local: base + uint64(fenceTrialBytes*(1+k)), Length: fenceTrialBytes,
			LocalKey: registered.LocalKey(),
			Remote:   base, RemoteKey: owner.key})
	}
	before := memory.Load(fenceTrialBytes - rdmanet.WordSize)
	if _, err := writer.link.post(writer.requests); err != nil {
		return false, err
	}
	for deadline := time.Now().Add(trialTimeout); memory.Load(fenceTrialBytes-rdmanet.WordSize) ==
		before; {
		e.progress()
		if time.Now().After(deadline) {
			return false, errDeadline
		}
	}
	owner.fence(method)
	var seen [fenceTrialBytes / rdmanet.WordSize]uint64
	for i := range seen {
		seen[i] = memory.Load(i * rdmanet.WordSize)
	}
	for rest := time.Now().Add(fenceTrialRest); time.Now().Before(rest); {
		e.progress()
	}
	writer.link.destroy()
	owner.link.destroy()
	for i := range seen {
		late = late || memory.Load(i*rdmanet.WordSize) != seen[i]
	}
	return late, nil
}

// guarded is a link owner that consists of a guard only.
type guarded struct{ guard }

func (g *guarded) progressed(uint64) { g.heard(nil) }
func (g *guarded) rung()             {}
func (g *guarded) broke(err error)   { g.heard(err) }

// hose is the owner of a link that writes continuously until it breaks.
type hose struct {
	link     *link
	requests []ibverbs.Request
}

func (h *hose) rung()       {}
func (h *hose) broke(error) {}
func (h *hose) progressed(uint64) {
	// Ignore an error: requests that cannot be posted are no longer needed.
	_, _ = h.link.post(h.requests[:h.link.room()])
}
