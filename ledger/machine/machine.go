// Package machine is the replicated state machine for those who embed the house: what an
// application has to be so that ordered rounds can drive it, with the ledger as its first user.
//
//	height, err := application.Open()             // the last round that is in it; the replica fetches or replays what came after
//	for each A-delivered round, in order {
//		height, err = application.Apply(machine.Round{Epoch: e, Number: r, Payloads: payloads})
//	}
//	height, err = application.Sync()              // beside it: up to here everything survives a power cut
//	err = application.Lookup(func(view V) error { ... })   // beside it: reads see what was applied
//	err = application.Close()
package machine

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
)

// Height counts what a state machine has applied.
type Height uint64

// Round is one A-delivered round: the payloads in their delivered order.
type Round struct {
	Epoch, Number uint64
	// Payloads must not change any more once applied.
	Payloads [][]byte
}

// StateMachine is a deterministic application: equal rounds in equal order make equal states on
// every replica. View is what reads see of it.
type StateMachine[View any] interface {
	// Open returns the height of the last applied round that survived; it is stored with that
	// round's effects, so that neither is there without the other. It is called once, first.
	Open() (Height, error)
	// Apply applies a round and returns the height after it, which is the height before where the
	// round changes nothing. One call at a time.
	Apply(Round) (Height, error)
	// Sync returns a height, at least that of before the call, up to which everything survives a
	// power cut. It may run beside Apply and Lookup.
	Sync() (Height, error)
	// Lookup reads. It may run beside everything else.
	Lookup(func(View) error) error
	// Close ends all use.
	Close() error
}

// ErrNotOpen says that the state machine was not opened, or was closed.
var ErrNotOpen = errors.New("machine: not open")

// Ledger is the ledger as a state machine: a round is a round message's batches, a height a
// block's.
type Ledger struct {
	// Folder, Genesis and Options are those of store.Open.
	Folder  string
	Genesis *ledger.Genesis
	Options store.Options

	mutex sync.RWMutex
	store *store.Store
}

var _ StateMachine[*store.Store] = (*Ledger)(nil)

// Open opens the store and returns its head's height.
func (l *Ledger) Open() (Height, error) {
	opened, err := store.Open(l.Folder, l.Genesis, l.Options)
	if err != nil {
		return 0, fmt.Errorf("machine: %w", err)
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.store = opened
	return Height(opened.AppendedHeight()), nil
}

func (l *Ledger) open() (*store.Store, error) {
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	if l.store == nil {
		return nil, ErrNotOpen
	}
	return l.store, nil
}

// Apply seals, executes and appends the block of a round.
func (l *Ledger) Apply(round Round) (Height, error) {
	opened, err := l.open()
	if err != nil {
		return 0, err
	}
	if _, err := opened.Apply(ledger.Epoch(round.Epoch), ledger.Round(round.Number),
		round.Payloads); err != nil {
		return 0, fmt.Errorf("machine: round %d: %w", round.Number, err)
	}
	return Height(opened.AppendedHeight()), nil
}

// Sync makes durable what was applied.
func (l *Ledger) Sync() (Height, error) {
	opened, err := l.open()
	if err != nil {
		return 0, err
	}
	if err := opened.Sync(); err != nil {
		return 0, fmt.Errorf("machine: %w", err)
	}
	return Height(opened.DurableHeight()), nil
}

// Lookup hands the store to read.
func (l *Ledger) Lookup(read func(*store.Store) error) error {
	opened, err := l.open()
	if err != nil {
		return err
	}
	return read(opened)
}

// Close makes durable what was applied, and closes the store.
func (l *Ledger) Close() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.store == nil {
		return ErrNotOpen
	}
	closing := l.store
	l.store = nil
	return closing.Close()
}
