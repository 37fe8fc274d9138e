package demo

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/client"
)

// inFlightMax bounds the transactions that are under way at once.
const inFlightMax = 64

// ErrRefused says that the ledger refused what has to be for the traffic to begin.
var ErrRefused = errors.New("demo: the ledger refuses the beginning")

// Options of the traffic.
type Options struct {
	// Rate is how many transactions begin in a second, more than 0.
	Rate float64
	// Seed makes another play of the same actors.
	Seed uint64
}

// Tally counts what became of the transactions.
type Tally struct {
	Applied uint64 `json:"applied"`
	Refused uint64 `json:"refused"` // by the ledger, as they had to be
	Lost    uint64 `json:"lost"`    // no node took them, or the end came first
}

// Actors are the organisations with their keys.
type Actors struct {
	keys map[ledger.OrganisationName]client.Key

	mutex sync.Mutex
	tally Tally
}

// NewActors makes a key for each organisation.
func NewActors(random io.Reader) (*Actors, error) {
	a := &Actors{keys: make(map[ledger.OrganisationName]client.Key)}
	for _, name := range organisations {
		_, private, err := ed25519.GenerateKey(random)
		if err != nil {
			return nil, fmt.Errorf("demo: %w", err)
		}
		a.keys[name] = client.Key{Organisation: name, Private: private}
	}
	return a, nil
}

// Tally tells what became of the transactions of Run up to now.
func (a *Actors) Tally() Tally {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.tally
}

// Begin registers the organisations, opens their accounts and issues what they have. ErrRefused, or a node's error.
func (a *Actors) Begin(ctx context.Context, node *client.Client) error {
	for _, name := range organisations {
		key := a.keys[name]
		if err := a.must(ctx, node, Act{Signers: []ledger.OrganisationName{name}, Transaction: ledger.Transaction{
			Registrations: []ledger.Registration{{Name: name, Keys: []ledger.PublicKey{key.Public()}}}, Openings: opening(name),
		}}); err != nil {
			return err
		}
	}
	for _, act := range funding() {
		if err := a.must(ctx, node, act); err != nil {
			return err
		}
	}
	return nil
}

func (a *Actors) must(ctx context.Context, node *client.Client, act Act) error {
	status, err := a.post(ctx, node, act)
	if err != nil {
		return fmt.Errorf("demo: beginning: %w", err)
	}
	if status.GetReasonCode() != "" {
		return fmt.Errorf("%w: %s", ErrRefused, status.GetReason())
	}
	return nil
}

func (a *Actors) post(ctx context.Context, node *client.Client, act Act) (*ledgerdv1.TransactionStatus, error) {
	keys := make([]client.Key, len(act.Signers))
	for i, name := range act.Signers {
		keys[i] = a.keys[name]
	}
	return node.Post(ctx, keys, act.Transaction, ledgerdv1.Level_LEVEL_DURABLE)
}

// Run lets things happen until ctx ends, at the nodes in turn. It is behind its rate when the nodes are.
func (a *Actors) Run(ctx context.Context, nodes []*client.Client, options Options) {
	play := scene{random: rand.New(rand.NewPCG(options.Seed, 0))}
	ticker := time.NewTicker(time.Duration(float64(time.Second) / options.Rate))
	defer ticker.Stop()
	slots := make(chan struct{}, inFlightMax)
	var underWay sync.WaitGroup
	defer underWay.Wait()
	for turn := 0; ; turn++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		select {
		case <-ctx.Done():
			return
		case slots <- struct{}{}:
		}
		act, node := play.next(), nodes[turn%len(nodes)]
		underWay.Go(func() {
			status, err := a.post(ctx, node, act)
			a.count(status, err)
			<-slots
		})
	}
}

func (a *Actors) count(status *ledgerdv1.TransactionStatus, err error) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	switch {
	case err != nil:
		a.tally.Lost++
	case status.GetReasonCode() != "":
		a.tally.Refused++
	default:
		a.tally.Applied++
	}
}
