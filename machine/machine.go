// Package machine is the replicated state machine. It defines the interface through which ordered
// rounds drive an application, and implements it for the ledger. A node's pipeline drives the
// ledger through it, and a program that embeds ledgerd drives its own application likewise.
//
//	// The height after the last round that it has. The replica fetches or replays later rounds.
//	height, err := application.Open()
//	for each A-delivered round, in order {
//		height, change, err := application.Apply(machine.RoundOf(delivery))
//	}
//	// Concurrently: everything up to this height survives a power cut.
//	height, err = application.Sync()
//	// Concurrently: reads see the applied rounds.
//	err = application.Lookup(func(view V) error { ... })
//	err = application.Close()
package machine

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/order"
)

// Height counts the changes that a state machine has applied. A round that changes nothing leaves
// it.
type Height uint64

// Round is one A-delivered round: its payloads in the order of delivery.
type Round struct {
	Epoch, Number uint64
	// Payloads must not change after they are applied.
	Payloads [][]byte
}

// RoundOf returns a round as an engine A-delivered it: the payloads by ascending origin, without
// the messages of servers that had nothing to send. It shares the payloads with the delivery, and
// no other memory. It leaves out which servers the group lost: see order.Delivery.
func RoundOf(delivery order.Delivery) Round {
	round := Round{Epoch: uint64(delivery.Epoch), Number: uint64(delivery.Round)}
	for _, message := range delivery.Messages {
		if len(message.Payload) > 0 {
			round.Payloads = append(round.Payloads, message.Payload)
		}
	}
	return round
}

// StateMachine is a deterministic application: the same rounds in the same order lead to the same
// state on every replica. View is the type through which it is read. Change is what a round
// changed, for the caller of Apply; its zero value stands for nothing.
type StateMachine[View, Change any] interface {
	// Open returns the height of the last applied round that survived. The height is stored
	// atomically with that round's effects. Open is called once, before all other methods.
	Open() (Height, error)
	// Apply applies a round. It returns the height after the round, which stays the same if the
	// round changes nothing, and what the round changed. Calls must not overlap. After an error the
	// round is not applied, and may be applied again.
	Apply(Round) (Height, Change, error)
	// Sync returns a height, at least the height before the call, up to which everything survives a
	// power cut. It may run concurrently with Apply and Lookup.
	Sync() (Height, error)
	// Lookup calls a function that reads. It may run concurrently with all other methods.
	Lookup(func(View) error) error
	// Close closes the state machine. No other method may be called afterwards.
	Close() error
}

// ErrNotOpen reports that the state machine was not opened, or was closed.
var ErrNotOpen = errors.New("machine: not open")

// Ledger is the ledger as a state machine. The payloads of a round are batches, heights are those
// of blocks, and a round changes at most one block.
type Ledger struct {
	// Folder, Genesis and Options are the arguments of store.Open.
	Folder  string
	Genesis *ledger.Genesis
	Options store.Options

	mutex sync.RWMutex
	store *store.Store
}

var _ StateMachine[*store.Store, *ledger.Block] = (*Ledger)(nil)

// Of returns the state machine of a store that is open. It needs no Open. To close the store is
// left to the caller.
func Of(opened *store.Store) *Ledger { return &Ledger{store: opened} }

// Open opens the store and returns the height of its head.
func (l *Ledger) Open() (Height, error) {
	opened, err := store.Open(l.Folder, l.Genesis, l.Options)
	if err != nil {
		return 0, err
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

// Apply seals, executes and appends the block of a round, and returns it, or nil for none.
func (l *Ledger) Apply(round Round) (Height, *ledger.Block, error) {
	opened, err := l.open()
	if err != nil {
		return 0, nil, err
	}
	block, err := opened.Apply(ledger.Epoch(round.Epoch), ledger.Round(round.Number),
		round.Payloads)
	if err != nil {
		return 0, nil, fmt.Errorf("round %d: %w", round.Number, err)
	}
	return Height(opened.AppendedHeight()), block, nil
}

// Sync makes the applied blocks durable.
func (l *Ledger) Sync() (Height, error) {
	opened, err := l.open()
	if err != nil {
		return 0, err
	}
	if err := opened.Sync(); err != nil {
		return 0, err
	}
	return Height(opened.DurableHeight()), nil
}

// Lookup calls read with the store.
func (l *Ledger) Lookup(read func(*store.Store) error) error {
	opened, err := l.open()
	if err != nil {
		return err
	}
	return read(opened)
}

// Close makes the applied blocks durable and closes the store.
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
