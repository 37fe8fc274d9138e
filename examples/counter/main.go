// Command counter shows a replicated state machine. Three servers each hold a counter and apply the
// rounds that they A-deliver. One server crashes while it A-broadcasts. The other two suspect it,
// still agree on every command, remove it and go on.
//
//	go run ./examples/counter
//
// The counter (counter.go) implements machine.StateMachine, the interface that drives the ledger.
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/machine"
	"github.com/ledgerd/ledgerd/order"
)

func main() {
	folder, err := os.MkdirTemp("", "counter-")
	if err == nil {
		err = errors.Join(run(os.Stdout, folder), os.RemoveAll(folder))
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(out io.Writer, folder string) (err error) {
	g, err := newGroup(out, folder, 3)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()

	g.servers[0].commands = []string{"+5", "+1"}
	g.servers[1].commands = []string{"*2"}
	g.servers[2].commands = []string{"+7"}
	// Server 2 sends its command to server 0 and crashes before it sends it to server 1.
	fmt.Fprintln(out, "server 2 A-broadcasts +7 and crashes: the command reaches server 0 only")
	if err := g.turn(2); err != nil {
		return err
	}
	g.crash(2, 0)
	if err := g.settle(); err != nil {
		return err
	}
	// The round cannot end before the others know that nothing more comes from server 2.
	fmt.Fprintln(out, "servers 0 and 1 suspect server 2")
	for _, i := range []order.ServerID{0, 1} {
		if err := g.servers[i].engine.Suspect(2); err != nil {
			return err
		}
		if err := g.turn(i); err != nil {
			return err
		}
	}
	if err := g.settle(); err != nil {
		return err
	}
	return g.compare()
}

// group is a group of servers and the network between them.
type group struct {
	out     io.Writer
	servers []*server
	network []frame // one queue for all: frames between two servers stay in order
}

type server struct {
	engine   *allconcur.Engine
	counter  machine.StateMachine[int64, int64]
	commands []string // that the server has yet to A-broadcast
	crashed  bool
}

type frame struct {
	from, to order.ServerID
	bytes    []byte
}

func newGroup(out io.Writer, folder string, servers int) (*group, error) {
	overlay, err := digraph.Complete(servers)
	if err != nil {
		return nil, err
	}
	g := &group{out: out}
	for i := range servers {
		engine, err := allconcur.New(allconcur.Config{Engine: allconcur.EngineAllConcur,
			Self: order.ServerID(i), Servers: servers, Reliable: overlay})
		if err != nil {
			return nil, err
		}
		counter := &Counter{Path: filepath.Join(folder, fmt.Sprintf("server-%d", i))}
		// A new counter has height 0. A replica that restarts applies the rounds that it lacks.
		if _, err := counter.Open(); err != nil {
			return nil, err
		}
		g.servers = append(g.servers, &server{engine: engine, counter: counter})
	}
	return g, nil
}

func (g *group) close() error {
	var failures []error
	for _, s := range g.servers {
		failures = append(failures, s.counter.Close())
	}
	return errors.Join(failures...)
}

// crash stops a server. Of the frames that it sent, only those to one other server arrive.
func (g *group) crash(i, reached order.ServerID) {
	g.servers[i].crashed = true
	var arriving []frame
	for _, f := range g.network {
		if f.from != i || f.to == reached {
			arriving = append(arriving, f)
		}
	}
	g.network = arriving
}

// settle lets every server act and carries frames until none are left.
func (g *group) settle() error {
	for i := range g.servers {
		if err := g.turn(order.ServerID(i)); err != nil {
			return err
		}
	}
	for len(g.network) > 0 {
		next := g.network[0]
		g.network = g.network[1:]
		if g.servers[next.to].crashed {
			continue
		}
		if err := g.servers[next.to].engine.Receive(next.from, next.bytes); err != nil {
			return err
		}
		if err := g.turn(next.to); err != nil {
			return err
		}
	}
	return nil
}

// turn does what a server does after each input: it A-broadcasts if it may and there is a reason,
// sends frames and applies what it A-delivered.
func (g *group) turn(i order.ServerID) error {
	s := g.servers[i]
	if s.crashed {
		return nil
	}
	for s.engine.CanBroadcast() && (len(s.commands) > 0 || s.engine.Solicited() ||
		s.engine.Undelivered()) {
		var payload []byte
		if len(s.commands) > 0 {
			payload, s.commands = []byte(s.commands[0]), s.commands[1:]
		}
		if err := s.engine.Broadcast(payload); err != nil {
			return err
		}
	}
	ready := s.engine.Ready()
	for _, send := range ready.Sends {
		for _, to := range send.To {
			g.network = append(g.network, frame{from: i, to: to, bytes: send.Frame})
		}
	}
	for _, delivery := range ready.Deliveries {
		if err := g.apply(i, delivery); err != nil {
			return err
		}
	}
	return nil
}

// apply applies an A-delivered round at a server.
func (g *group) apply(i order.ServerID, delivery order.Delivery) error {
	round := machine.RoundOf(delivery)
	counter := g.servers[i].counter
	height, _, err := counter.Apply(round)
	if err != nil {
		return err
	}
	if len(round.Payloads) == 0 && len(delivery.Removed) == 0 {
		return nil
	}
	return counter.Lookup(func(value int64) error {
		_, err := fmt.Fprintf(g.out, "server %d, round %d: %q, removed %v: %d at height %d\n", i,
			delivery.Round, round.Payloads, delivery.Removed, value, height)
		return err
	})
}

// compare returns an error unless all servers that run have the same value.
func (g *group) compare() error {
	values := map[int64]bool{}
	for _, s := range g.servers {
		if s.crashed {
			continue
		}
		if err := s.counter.Lookup(func(value int64) error {
			values[value] = true
			return nil
		}); err != nil {
			return err
		}
	}
	if len(values) != 1 {
		return fmt.Errorf("the replicas disagree: %v", values)
	}
	for value := range values {
		fmt.Fprintf(g.out, "the replicas agree on %d\n", value)
	}
	return nil
}
