package bench

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// load runs the clients of a run. Each submits one bundle after the other and waits for its
// acknowledgement.
type load struct {
	level   ledgerdv1.Level
	bundle  int
	genesis ledger.Hash
	clients []*loadClient
	working sync.WaitGroup
	stop    context.CancelFunc

	mutex        sync.Mutex
	measuring    bool
	begun        time.Time
	measured     Window
	acknowledged uint64
}

// loadClient is one client with its organisation.
type loadClient struct {
	node       *client.Client
	key        client.Key
	mint, cash ledger.AccountPath
	sequence   uint64
}

// newLoad makes the clients and registers their organisations, several at a time.
func newLoad(ctx context.Context, p LedgerParameters, urls []string) (l *load, err error) {
	l = &load{level: ackLevels[p.Ack], bundle: p.Bundle}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	for i := range p.Clients {
		_, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("bench: %w", err)
		}
		name := ledger.OrganisationName(fmt.Sprintf("client-%d", i))
		node, err := client.New([]string{urls[i%len(urls)]}, client.Options{})
		if err != nil {
			return nil, err
		}
		l.clients = append(l.clients, &loadClient{
			node: node, key: client.NewKey(name, private),
			mint: ledger.AccountPath(name + ":mint"), cash: ledger.AccountPath(name + ":cash"),
		})
	}
	if l.genesis, err = l.clients[0].node.Genesis(ctx); err != nil {
		return nil, err
	}
	failures := make([]error, len(l.clients))
	slots := make(chan struct{}, 16)
	var registering sync.WaitGroup
	for i, c := range l.clients {
		slots <- struct{}{}
		registering.Go(func() {
			failures[i] = l.register(ctx, c)
			<-slots
		})
	}
	registering.Wait()
	return l, errors.Join(failures...)
}

// next returns an empty transaction with the client's next nonce.
func (l *load) next(c *loadClient) ledger.Transaction {
	c.sequence++
	return ledger.Transaction{Ledger: l.genesis, Signer: c.key.Organisation,
		Nonce: ledger.Nonce{Stream: 1, Sequence: c.sequence}}
}

// register registers a client's organisation, alone in its transaction, and then opens its
// accounts.
func (l *load) register(ctx context.Context, c *loadClient) error {
	registration, openings := l.next(c), l.next(c)
	registration.Registrations = []ledger.Registration{{Name: c.key.Organisation,
		Keys: []ledger.PublicKey{c.key.Public()}}}
	openings.Openings = []ledger.Opening{{Account: c.mint, Issuer: true}, {Account: c.cash}}
	for _, transaction := range []ledger.Transaction{registration, openings} {
		bundle, err := client.Sign(ctx, []client.Key{c.key}, transaction)
		if err != nil {
			return err
		}
		// Wait until it is durable: then every node knows the organisation, or is about to.
		statuses, err := c.node.Submit(ctx, bundle, ledgerdv1.Level_LEVEL_DURABLE)
		if err != nil {
			return err
		}
		if err := refused(statuses); err != nil {
			return err
		}
	}
	return nil
}

// refused returns the error of the first transaction that the ledger did not apply.
func refused(statuses []*ledgerdv1.TransactionStatus) error {
	for _, status := range statuses {
		if status.GetState() < ledgerdv1.TransactionState_TRANSACTION_STATE_ORDERED ||
			status.GetReasonCode() != "" {
			return fmt.Errorf("%w: a transaction is %v: %s", ErrServer, status.GetState(),
				status.GetReason())
		}
	}
	return nil
}

// start lets all clients submit until end is called. A client that fails passes its error to fail.
func (l *load) start(ctx context.Context, fail func(error)) {
	ctx, l.stop = context.WithCancel(ctx)
	for _, c := range l.clients {
		l.working.Go(func() {
			for ctx.Err() == nil {
				if err := l.submit(ctx, c); err != nil && ctx.Err() == nil {
					fail(err)
					return
				}
			}
		})
	}
}

// submit makes, signs and submits a bundle of transfers, and waits for it.
func (l *load) submit(ctx context.Context, c *loadClient) error {
	transactions := make([]ledger.Transaction, l.bundle)
	for i := range transactions {
		transactions[i] = l.next(c)
		transactions[i].Postings = []ledger.Posting{
			{Account: c.mint, Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(-5)},
			{Account: c.cash, Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(5)},
		}
	}
	bundle, err := client.Sign(ctx, []client.Key{c.key}, transactions...)
	if err != nil {
		return err
	}
	size := uint64(len(bundle.Encode()))
	begun := time.Now()
	statuses, err := c.node.Submit(ctx, bundle, l.level)
	if err != nil {
		return err
	}
	if err := refused(statuses); err != nil {
		return err
	}
	took := time.Since(begun)
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.acknowledged += uint64(l.bundle)
	if l.measuring {
		l.measured.Requests += uint64(l.bundle)
		l.measured.Bytes += size
		l.measured.Latency.Add(took)
	}
	return nil
}

// begin opens the measured window. window closes it.
func (l *load) begin() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.measuring, l.begun = true, time.Now()
}

func (l *load) window() Window {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.measuring = false
	l.measured.Seconds = time.Since(l.begun).Seconds()
	return l.measured
}

// end stops the clients and returns the number of acknowledged transactions.
func (l *load) end() (acknowledged uint64) {
	l.stop()
	l.working.Wait()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.acknowledged
}

func (l *load) close() {
	for _, c := range l.clients {
		c.node.Close()
	}
}
