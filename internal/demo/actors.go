package demo

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// inFlightMax limits the transactions that are under way at once.
const inFlightMax = 64

// ErrRefused means that the ledger refused a transaction that the traffic needs at its beginning.
var ErrRefused = errors.New("demo: the ledger refuses the beginning")

// Options are options of the traffic.
type Options struct {
	// Rate is the number of transactions begun in a second. It must be above 0.
	Rate float64
	// Seed selects a play of the same actors.
	Seed uint64
}

// Tally counts the transactions by outcome.
type Tally struct {
	Applied uint64 `json:"applied"`
	Refused uint64 `json:"refused"` // by the ledger, as intended
	Lost    uint64 `json:"lost"`    // no node accepted them, or the run ended first
	// Crossed is the number of applied and refused transactions that concerned several shards.
	Crossed uint64 `json:"crossed"`
}

// Actors are the organisations and their keys.
type Actors struct {
	keys   map[ledger.OrganisationName]client.Key
	shards int

	mutex sync.Mutex
	tally Tally
}

// NewActors makes a key for each organisation. The organisations are spread over the shards of the
// book, of which there is at least one.
func NewActors(random io.Reader, shards int) (*Actors, error) {
	a := &Actors{keys: make(map[ledger.OrganisationName]client.Key), shards: shards}
	for _, name := range organisations {
		_, private, err := ed25519.GenerateKey(random)
		if err != nil {
			return nil, fmt.Errorf("demo: %w", err)
		}
		a.keys[name] = client.NewKey(name, private)
	}
	return a, nil
}

// Tally returns the outcomes of Run's transactions so far.
func (a *Actors) Tally() Tally {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.tally
}

// Home is the shard in which an organisation lives.
type Home struct {
	Organisation ledger.OrganisationName `json:"organisation"`
	Shard        ledger.ShardID          `json:"shard"`
}

// Homes returns the organisations and their shards, which they take in turn.
func (a *Actors) Homes() []Home {
	homes := make([]Home, len(organisations))
	for i, name := range organisations {
		homes[i] = Home{name, ledger.ShardID(i % a.shards)}
	}
	return homes
}

// registration returns the registration of an organisation, alone in its transaction, as a book of
// several shards requires.
func (a *Actors) registration(of Home) Act {
	key := a.keys[of.Organisation]
	return Act{Signers: []ledger.OrganisationName{of.Organisation},
		Transaction: ledger.Transaction{Registrations: []ledger.Registration{{
			Name: of.Organisation, Keys: []ledger.PublicKey{key.Public()}, Shard: of.Shard,
			Pinned: a.shards > 1,
		}}}}
}

// Begin registers the organisations, opens their accounts and issues their assets. The error wraps
// ErrRefused, or is a node's error.
func (a *Actors) Begin(ctx context.Context, node *client.Client) error {
	var registrations, openings []Act
	for _, home := range a.Homes() {
		registrations = append(registrations, a.registration(home))
		openings = append(openings, Act{Signers: []ledger.OrganisationName{home.Organisation},
			Transaction: ledger.Transaction{Openings: opening(home.Organisation)}})
	}
	for _, act := range slices.Concat(registrations, openings, funding()) {
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

func (a *Actors) post(ctx context.Context, node *client.Client,
	act Act) (*ledgerdv1.TransactionStatus, error) {
	return node.Post(ctx, a.keysOf(act), act.Transaction, ledgerdv1.Level_LEVEL_DURABLE)
}

func (a *Actors) keysOf(act Act) []client.Key {
	keys := make([]client.Key, len(act.Signers))
	for i, name := range act.Signers {
		keys[i] = a.keys[name]
	}
	return keys
}

// senders are those of the acts' signers.
type senders struct {
	actors *Actors
	nodes  []*client.Client
	bySet  map[string]*client.Sender // by the names of the signers
}

// inFlight is the number of bundles that each sender may have under way.
const inFlight = 2

// of returns the sender for an act. Acts with the same signers share one, at one of the nodes.
func (s *senders) of(ctx context.Context, act Act) (*client.Sender, error) {
	var set strings.Builder
	for _, name := range act.Signers {
		set.WriteString(string(name))
		set.WriteByte(' ')
	}
	if found := s.bySet[set.String()]; found != nil {
		return found, nil
	}
	made, err := s.nodes[len(s.bySet)%len(s.nodes)].NewSender(ctx, client.SenderOptions{
		Keys: s.actors.keysOf(act), InFlight: inFlight})
	if err == nil {
		s.bySet[set.String()] = made
	}
	return made, err
}

// close ends all senders. What is under way is lost from sight.
func (s *senders) close() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, each := range s.bySet {
		_ = each.Close(ended)
	}
}

// Run plays scenes until ctx ends. Acts with the same signers go out together, and the nodes share
// the sets of signers. It falls behind its rate if the nodes are too slow.
func (a *Actors) Run(ctx context.Context, nodes []*client.Client, options Options) {
	play := scene{random: rand.New(rand.NewPCG(options.Seed, 0))}
	ticker := time.NewTicker(time.Duration(float64(time.Second) / options.Rate))
	defer ticker.Stop()
	slots := make(chan struct{}, inFlightMax)
	senders := &senders{actors: a, nodes: nodes, bySet: make(map[string]*client.Sender)}
	defer senders.close()
	var underWay sync.WaitGroup
	defer underWay.Wait()
	for {
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
		act := play.next()
		sender, err := senders.of(ctx, act)
		if err != nil {
			a.count(nil, err)
			<-slots
			continue
		}
		underWay.Go(func() {
			answer, err := sender.Post(ctx, act.Transaction)
			a.count(answer.Status, err)
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
	if err == nil && len(status.GetDestinations()) > 1 {
		a.tally.Crossed++
	}
}
