package testnet

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// Node is a running node, with the methods that networks of nodes need.
type Node interface {
	// URL returns the address of its API.
	URL() string
	// State returns its state.
	State() report.NodeState
	// Done is closed when it ended by itself or was stopped. Err returns the reason.
	Done() <-chan struct{}
	Err() error
	// Stop stops it in good order, as far as ctx allows.
	Stop(ctx context.Context) error
}

// Starter starts the node in a home over a fabric. If the fabric is nil, it uses the one in the
// node's configuration. It returns once the node's API listens.
type Starter func(ctx context.Context, at *home.Home, fabric rdmanet.Host) (Node, error)

// EmbedOptions describes a network within this process.
type EmbedOptions struct {
	// Dir gets the homes. It must be empty or not exist.
	Dir string
	// Ports are the ports of the APIs, one for each node of each shard. 0 means any free port.
	Ports []int
	// Shards is the number of shards in the book; the number of ports must be a multiple of it.
	// Tree holds each shard's parent, as in Layout.
	Shards int
	Tree   []ledger.ShardID
	// Chain and Engine are as in Layout.
	Chain, Engine string
	// Change, unless nil, changes a node's configuration before it is written.
	Change func(node int, config *home.Config)
	// Start starts a node.
	Start Starter
}

// Embedded is a network within this process, over the memory fabric.
type Embedded struct {
	homes []*home.Home
	hosts []rdmanet.Host
	nodes []Node
	ended chan int // the indices of nodes that ended by themselves
	stop  chan struct{}
	watch sync.WaitGroup
}

// Embed makes the homes and starts the nodes, over one fabric for all shards. If it fails, nothing
// is left running; the caller removes the folder.
func Embed(ctx context.Context, options EmbedOptions) (*Embedded, error) {
	shards := max(options.Shards, 1)
	if len(options.Ports)%shards != 0 {
		return nil, fmt.Errorf("%w: %d ports for %d shards, want as many for each", ErrLayout,
			len(options.Ports), shards)
	}
	layout := Layout{Dir: options.Dir, Nodes: len(options.Ports) / shards, Shards: shards,
		Tree: options.Tree, Chain: options.Chain, Engine: options.Engine, Fabric: fabric.Memory}
	layout.Change = func(i int, config *home.Config) {
		config.API.Listen = address(options.Ports[i])
		config.API.AllowedOrigins = originsOf(options.Ports)
		config.Fabric.Listen = "memory:" + strconv.Itoa(i)
		if options.Change != nil {
			options.Change(i, config)
		}
	}
	homes, err := Make(layout)
	if err != nil {
		return nil, err
	}
	return EmbedHomes(ctx, homes, options.Start)
}

// EmbedHomes starts the nodes in existing homes. If it fails, nothing is left running.
func EmbedHomes(ctx context.Context, homes []*home.Home, start Starter) (embedded *Embedded,
	err error) {
	e := &Embedded{homes: homes, nodes: make([]Node, len(homes)), ended: make(chan int, len(homes)),
		stop: make(chan struct{})}
	defer func() {
		if err != nil {
			closing, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			err = errors.Join(err, e.Stop(closing))
		}
	}()
	network := memory.NewNetwork()
	for _, h := range homes {
		id, err := p2p.PeerID(h.Key.Public().(ed25519.PublicKey))
		if err != nil {
			return nil, err
		}
		host, err := network.Host(id)
		if err != nil {
			return nil, fmt.Errorf("testnet: host of %s: %w", h.Name(), err)
		}
		e.hosts = append(e.hosts, host)
	}
	failures := make([]error, len(homes))
	var starting sync.WaitGroup
	for i, h := range homes {
		starting.Go(func() {
			node, err := start(ctx, h, e.hosts[i])
			if err != nil {
				failures[i] = fmt.Errorf("%s: %w", h.Name(), err)
				return
			}
			e.nodes[i] = node
		})
	}
	starting.Wait()
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	for i, node := range e.nodes {
		e.watch.Go(func() {
			select {
			case <-node.Done():
				e.ended <- i
			case <-e.stop:
			}
		})
	}
	return e, nil
}

// Nodes returns the nodes in order.
func (e *Embedded) Nodes() []Node { return e.nodes }

// Homes returns the nodes' homes in order.
func (e *Embedded) Homes() []*home.Home { return e.homes }

// URLs returns the addresses of the nodes' APIs.
func (e *Embedded) URLs() []string {
	urls := make([]string, len(e.nodes))
	for i, node := range e.nodes {
		urls[i] = node.URL()
	}
	return urls
}

// Ended receives the index of each node that ends before Stop.
func (e *Embedded) Ended() <-chan int { return e.ended }

// readyPause is the pause between two looks at the nodes' states.
const readyPause = 20 * time.Millisecond

// Ordering waits until all nodes order transactions. It returns the error of a node that ended, or
// ctx's cause and what a node waits for.
func (e *Embedded) Ordering(ctx context.Context) error {
	ticker := time.NewTicker(readyPause)
	defer ticker.Stop()
	for {
		waiting := ""
		for i, node := range e.nodes {
			if state := node.State(); state.Mode != report.ModeOrdering && waiting == "" {
				waiting = fmt.Sprintf("%s is %v: %s", Name(i), state.Mode, state.Reason)
			}
		}
		if waiting == "" {
			return nil
		}
		select {
		case i := <-e.ended:
			e.ended <- i
			return fmt.Errorf("testnet: %s ended: %w", Name(i), e.nodes[i].Err())
		case <-ctx.Done():
			return fmt.Errorf("testnet: %s: %w", waiting, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// Stop stops all nodes at once, in good order as far as ctx allows, and closes their fabric.
func (e *Embedded) Stop(ctx context.Context) error {
	close(e.stop)
	e.watch.Wait()
	failures := make([]error, len(e.nodes)+len(e.hosts))
	var stopping sync.WaitGroup
	for i, node := range e.nodes {
		if node != nil {
			stopping.Go(func() { failures[i] = node.Stop(ctx) })
		}
	}
	stopping.Wait()
	for i, host := range e.hosts {
		stopping.Go(func() { failures[len(e.nodes)+i] = host.Close(ctx) })
	}
	stopping.Wait()
	return errors.Join(failures...)
}
