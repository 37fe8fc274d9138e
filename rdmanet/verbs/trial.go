//go:build verbs

package verbs

import (
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/segment"
	"github.com/ledgerd/ledgerd/rdmanet/verbs/ibverbs"
)

// trialTimeout bounds each step of the trial.
const trialTimeout = 2 * time.Second

// witness is the owner of a link that only wants to know how a request ended.
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

// try finds out, by writing to this host's own memory, whether the device works.
func (e *engine) try() error {
	memory, err := segment.New(2 * rdmanet.WordSize)
	if err != nil {
		return err
	}
	domain, err := e.context.NewDomain()
	if err != nil {
		return err
	}
	registered, err := domain.Register(memory.Bytes(), ibverbs.AccessLocalWrite|ibverbs.AccessRemoteWrite)
	if err != nil {
		return errors.Join(err, domain.Close())
	}
	err = e.tryWrite(domain, memory, registered)
	return errors.Join(err, registered.Close(), domain.Close())
}

func (e *engine) tryWrite(domain *ibverbs.Domain, memory *segment.Segment, registered *ibverbs.Memory) error {
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
	write := []ibverbs.Request{{Local: base, Remote: base + rdmanet.WordSize, Length: rdmanet.WordSize, LocalKey: registered.LocalKey(), RemoteKey: registered.RemoteKey(),
		Opcode: ibverbs.OpcodeWrite}}
	memory.Store(0, 1)
	if _, err := out.post(write); err != nil {
		return err
	}
	if err := writer.wait(); err != nil || memory.Load(rdmanet.WordSize) != 1 {
		return fmt.Errorf("a write to this host's own memory does not arrive: %w", err)
	}
	return nil
}
