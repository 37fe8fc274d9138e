// Command seats shows a reservation system without a central server [Poke19, section 5.7.3]. Every
// server takes reservations of 64 bytes and A-broadcasts them. Each seat goes to the first
// customer in the agreed order, so every server knows which customer has it, without asking
// another.
//
//	go run ./examples/seats
//	go run ./examples/seats --servers 8 --flights 500 --requests 1000000
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/examples/internal/group"
	"github.com/ledgerd/ledgerd/order"
)

const (
	requestSize    = 64 // bytes, as in the dissertation's benchmark
	seatsOfAFlight = 180
	// waitingRequests bounds the reservations that wait at a server. More of them block customers.
	waitingRequests = 1 << 14
)

// options is the size of a run.
type options struct {
	servers, flights int
	requests         int // of all customers, at each server
}

func main() {
	var o options
	flag.IntVar(&o.servers, "servers", 4, "number of servers")
	flag.IntVar(&o.flights, "flights", 100, "number of flights")
	flag.IntVar(&o.requests, "requests", 200_000, "number of reservations at each server")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, o); err != nil {
		log.Print(err)
		os.Exit(1)
	}
}

// run lets the customers of all servers reserve seats at random, and checks the result.
func run(ctx context.Context, out io.Writer, o options) (err error) {
	if o.servers < 1 || o.flights < 1 || o.requests < 1 {
		return errors.New("want at least one server, one flight and one request")
	}
	servers := make([]*server, o.servers)
	for i := range servers {
		servers[i] = newServer(order.ServerID(i), o)
	}
	g, err := group.Start(allconcur.EngineAllConcurPlus, servers)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	begun := time.Now()
	var customers sync.WaitGroup
	for i, s := range servers {
		customers.Go(func() { s.receive(ctx, uint64(i), o) })
	}
	for _, s := range servers {
		select {
		case <-s.done:
		case reason := <-g.Halted():
			cancel(reason)
		case <-ctx.Done():
		}
	}
	took := time.Since(begun)
	cause := context.Cause(ctx)
	cancel(nil)
	customers.Wait()
	if err := errors.Join(cause, g.Close()); err != nil {
		return err
	}
	agreed := o.servers * o.requests
	fmt.Fprintf(out, "%d servers agreed on %d reservations in %v: %.0f a second\n", o.servers,
		agreed, took.Round(time.Millisecond), float64(agreed)/took.Seconds())
	return audit(out, servers)
}

// audit compares the servers' plans of the seats, and looks for a seat that was sold twice.
func audit(out io.Writer, servers []*server) error {
	sold := map[uint32]customer{}
	for _, s := range servers {
		if !slices.Equal(s.holders, servers[0].holders) {
			return fmt.Errorf("servers 0 and %d disagree on a seat", s.self)
		}
		for _, t := range s.tickets {
			if first, taken := sold[t.seat]; taken {
				return fmt.Errorf("seat %d was sold to %d and to %d", t.seat, first, t.holder)
			}
			sold[t.seat] = t.holder
		}
	}
	_, err := fmt.Fprintf(out, "%d of %d seats are sold, none of them twice, and all servers "+
		"agree\n", len(sold), len(servers[0].holders))
	return err
}

// customer identifies a customer of any server. 0 is no customer.
type customer uint64

// ticket is what a server gives a customer.
type ticket struct {
	seat   uint32
	holder customer
}

// server is one server of the reservation system.
type server struct {
	self     order.ServerID
	requests chan [requestSize]byte // that the server has yet to A-broadcast
	ready    chan struct{}

	// The rest belongs to Deliver.
	holders []customer // by seat
	tickets []ticket   // that this server gave its own customers
	left    int        // reservations that are yet to be agreed on
	done    chan struct{}
}

func newServer(self order.ServerID, o options) *server {
	return &server{self: self, requests: make(chan [requestSize]byte, waitingRequests),
		ready: make(chan struct{}, 1), holders: make([]customer, o.flights*seatsOfAFlight),
		left: o.servers * o.requests, done: make(chan struct{})}
}

// receive takes the requests of this server's customers. Each customer wants a seat at random.
func (s *server) receive(ctx context.Context, seed uint64, o options) {
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range o.requests {
		var request [requestSize]byte
		holder := 1 + uint64(s.self)*uint64(o.requests) + uint64(i)
		binary.LittleEndian.PutUint64(request[0:], holder)
		binary.LittleEndian.PutUint32(request[8:], random.Uint32N(uint32(len(s.holders))))
		select {
		case s.requests <- request:
		case <-ctx.Done():
			return
		}
		select {
		case s.ready <- struct{}{}:
		default: // the driver has yet to take the last signal
		}
	}
}

// Next returns all requests that wait, as one message.
func (s *server) Next(maxBytes int) []byte {
	var batch []byte
	for len(batch)+requestSize <= maxBytes {
		select {
		case request := <-s.requests:
			batch = append(batch, request[:]...)
		default:
			return batch
		}
	}
	return batch
}

// Ready receives a value after new requests.
func (s *server) Ready() <-chan struct{} { return s.ready }

// Deliver gives each seat to the first customer that asked for it. The order of the requests is the
// same at all servers.
func (s *server) Deliver(_ context.Context, rounds []order.Delivery) error {
	for _, round := range rounds {
		for _, message := range round.Messages {
			for request := range slices.Chunk(message.Payload, requestSize) {
				s.reserve(message.Origin, request)
			}
		}
	}
	return nil
}

func (s *server) reserve(origin order.ServerID, request []byte) {
	holder := customer(binary.LittleEndian.Uint64(request[0:]))
	seat := binary.LittleEndian.Uint32(request[8:])
	if s.holders[seat] == 0 {
		s.holders[seat] = holder
		if origin == s.self {
			s.tickets = append(s.tickets, ticket{seat: seat, holder: holder})
		}
	}
	if s.left--; s.left == 0 {
		close(s.done)
	}
}
