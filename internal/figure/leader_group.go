package figure

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/sim/fabric"
	"github.com/ledgerd/ledgerd/sim/network"
)

const (
	// keyBytes is the size of a key in each request [Poke19, section 4.7].
	keyBytes = 64
	// clientPatience is how long a client waits for an answer before it asks all servers again.
	clientPatience = time.Millisecond
	// leaderBeat is the interval of a leader's heartbeats, and leaderTimeout how long it may be
	// silent. An access of a dead host fails after accessTimeout, and a leader removes a server
	// after failedBeats such heartbeats [Poke19, section 4.7.2].
	leaderBeat, leaderTimeout = time.Millisecond, 10 * time.Millisecond
	accessTimeout             = 2 * time.Millisecond
	failedBeats               = 2
	// leaderLog is the number of entries of a log. A lone client's writes of the time in which a
	// leader removes a server that failed do not fill it.
	leaderLog = 1024
	// leaderTick is how often time passes for servers that wait.
	leaderTick = 100 * time.Microsecond
)

// leaderLoad is a group of DARE's servers and the clients that ask it.
type leaderLoad struct {
	servers, seats, clients int
	// bytes is the size of the data of a request, which a key comes with.
	bytes int
	// writes is the share of the requests that write.
	writes float64
}

// leaderGroup is such a group on timed memory. Clients send datagrams. Each has one request under
// way. A leader puts the writes that came meanwhile into one message, and answers the reads that
// came meanwhile after one check. It has one message under way [Poke19, section 4.7.3].
type leaderGroup struct {
	load    leaderLoad
	model   network.RDMA
	network *fabric.Network
	config  dare.Config
	seats   []*leaderServer
	clients []*leaderClient
	// answered is called for each answer that a client takes.
	answered func(at, took time.Duration, write bool)
	// want are the members that the operator wants, by seat, and size that of the group. dead are
	// servers that crashed, by seat, since they did.
	want []rdmanet.Peer
	size int
	dead map[int]time.Duration
	err  error
}

// leaderServer is a server of a group, in a seat.
type leaderServer struct {
	*dare.Server
	host *fabric.Host
	// busy is until when its processor handles datagrams. waking says that an event wakes it then.
	busy   time.Duration
	waking bool
	gone   bool
	// joins says that it does not work yet, since not all servers know of it.
	joins bool
	// inbox are the requests that arrived, reads and writes those that it took. under are those of
	// its A-broadcast, and checked the reads that wait for the check with a number.
	inbox, reads, writes, under, checked []leaderRequest
	check                                uint64
	// leading says that it leads, since an instant.
	leading bool
	since   time.Duration
}

// leaderRequest is a client's request with a number.
type leaderRequest struct {
	client *leaderClient
	number int
	write  bool
}

// leaderClient is a client that asks for one thing after the other.
type leaderClient struct {
	random *rand.Rand
	number int
	write  bool
	began  time.Duration
	// leader is the seat that answered last, or -1.
	leader int
}

// newLeaderGroup starts the servers of a group, the first of which campaigns, and the clients.
func newLeaderGroup(l leaderLoad, answered func(at, took time.Duration, write bool)) (*leaderGroup,
	error) {
	g := &leaderGroup{load: l, model: network.InfiniBandRDMA, answered: answered,
		want: make([]rdmanet.Peer, l.seats), size: l.servers, dead: map[int]time.Duration{},
		seats: make([]*leaderServer, l.seats)}
	g.network = fabric.New(fabric.Options{Timing: fabric.LogGP{RDMA: g.model},
		OperationTimeout: accessTimeout})
	g.config = dare.Config{Seats: l.seats, FirstRound: 1, LogSlots: leaderLog, Window: 1,
		PayloadMax: l.clients * (keyBytes + l.bytes), Timeout: leaderTimeout, Beat: leaderBeat,
		Patience: 2 * accessTimeout}
	g.config.MessagesMax = g.config.PayloadMax
	for seat := range l.servers {
		host, err := g.network.Start(rdmanet.PeerID(strconv.Itoa(seat)))
		if err != nil {
			return nil, err
		}
		g.config.Peers = append(g.config.Peers, host.Peer())
		g.want[seat], g.seats[seat] = host.Peer(), &leaderServer{host: host}
	}
	for seat, s := range g.seats[:l.servers] {
		if err := g.make(s, seat, false); err != nil {
			return nil, err
		}
	}
	g.seats[0].Campaign()
	for c := range l.clients {
		client := &leaderClient{random: rand.New(rand.NewPCG(uint64(c), 0x64617265)), leader: -1}
		g.clients = append(g.clients, client)
		g.next(client)
	}
	g.tick()
	return g, nil
}

// make makes the engine of a server.
func (g *leaderGroup) make(s *leaderServer, seat int, joins bool) (err error) {
	config := g.config
	config.Self, config.Joins = order.ServerID(seat), joins
	s.Server, err = dare.New(config, s.host)
	return err
}

// join starts a server in a seat, anew if it crashed, and makes the operator want it.
func (g *leaderGroup) join(seat int) error {
	host, err := g.network.Start(rdmanet.PeerID(strconv.Itoa(seat)))
	if err != nil {
		return err
	}
	s := &leaderServer{host: host, joins: true}
	if seat < len(g.config.Peers) {
		g.config.Peers[seat] = host.Peer()
	}
	if err := g.make(s, seat, true); err != nil {
		return err
	}
	g.seats[seat], g.want[seat], g.size = s, host.Peer(), max(g.size, seat+1)
	delete(g.dead, seat)
	return nil
}

// crash ends a server.
func (g *leaderGroup) crash(seat int) {
	g.dead[seat], g.seats[seat].gone = g.network.Now(), true
	g.network.Crash(rdmanet.PeerID(strconv.Itoa(seat)))
}

// leader returns the seat of the server that leads, or -1.
func (g *leaderGroup) leader() int {
	for seat, s := range g.seats {
		if s != nil && !s.gone && s.Leading() {
			return seat
		}
	}
	return -1
}

// tick lets time pass.
func (g *leaderGroup) tick() { g.network.After(leaderTick, g.tick) }

// run runs the group until an instant.
func (g *leaderGroup) run(ctx context.Context, until time.Duration) error {
	for events := 0; g.network.Now() < until; events++ {
		if events%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		for seat := range g.seats {
			g.work(seat)
		}
		if g.err != nil {
			return g.err
		}
		g.network.Step() // a tick comes at least
	}
	return nil
}

// work makes a server work while its processor is free.
func (g *leaderGroup) work(seat int) {
	s := g.seats[seat]
	for s != nil && !s.gone && !g.unknown(s, seat) {
		now := g.network.Now()
		if until := max(s.host.BusyUntil(), s.busy); until > now {
			if !s.waking {
				s.waking = true
				g.network.After(until-now, func() { s.waking = false })
			}
			return
		}
		if !g.turn(s, seat, now) {
			return
		}
	}
}

// unknown reports whether a server that joins is not in the configuration of all others. It waits
// for that: a server that does not know it refuses it, and it would ask again after some time only.
func (g *leaderGroup) unknown(s *leaderServer, seat int) bool {
	s.joins = s.joins && slices.ContainsFunc(g.seats, func(other *leaderServer) bool {
		return other != nil && !other.gone && !other.joins &&
			other.Configuration().Seats[seat].Peer != s.host.Peer()
	})
	return s.joins
}

// turn makes a server do what it can do now. It reports whether there was anything.
func (g *leaderGroup) turn(s *leaderServer, seat int, now time.Duration) bool {
	if g.receive(s, now) {
		return true
	}
	g.ask(s)
	busy := s.Poll(now)
	for _, want := range s.Wanted() {
		attachment, err := s.host.Attach(context.Background(), want.Peer, want.Region)
		s.Attached(want.Number, attachment, err)
		busy = busy || err == nil
	}
	for _, delivery := range s.Deliveries() {
		for _, message := range delivery.Messages {
			if int(message.Origin) == seat && message.Payload != nil && len(s.under) > 0 {
				g.answer(s, seat, now, s.under)
				s.under = nil
			}
		}
	}
	if passed, err := s.Passed(s.check); len(s.checked) > 0 && (passed || err != nil) {
		if passed {
			g.answer(s, seat, now, s.checked)
		}
		s.checked, busy = nil, true
	}
	if s.Leading() != s.leading {
		s.leading, s.since = s.Leading(), now
		s.under, s.checked, s.reads, s.writes = nil, nil, nil, nil // their clients ask again
	}
	if err := g.operate(s, now); err != nil {
		g.err = fmt.Errorf("server %d at %v: %w", seat, now, err)
	}
	switch why := s.Halted(); {
	case s.Removed():
		s.gone = true
	case why != "":
		g.err = fmt.Errorf("server %d halts at %v: %s", seat, now, why)
	}
	return busy && g.err == nil
}

// receive takes the requests that arrived, which takes the processor some time. Only a leader
// handles them.
func (g *leaderGroup) receive(s *leaderServer, now time.Duration) bool {
	for _, r := range s.inbox {
		s.busy = max(s.busy, now) + g.model.DatagramOf(g.requestBytes(r.write)).Overhead
		switch {
		case !s.Leading() || s.has(r):
		case r.write:
			s.writes = append(without(s.writes, r.client), r)
		default:
			s.reads = append(without(s.reads, r.client), r)
		}
	}
	took := len(s.inbox) > 0
	s.inbox = s.inbox[:0]
	return took
}

// without leaves out what a client asked before. Another server answered it, or the client would
// not ask for something else.
func without(requests []leaderRequest, client *leaderClient) []leaderRequest {
	return slices.DeleteFunc(requests, func(r leaderRequest) bool { return r.client == client })
}

// has reports whether a server has a request already.
func (s *leaderServer) has(r leaderRequest) bool {
	for _, all := range [][]leaderRequest{s.reads, s.writes, s.checked, s.under} {
		if slices.Contains(all, r) {
			return true
		}
	}
	return false
}

// ask begins with the writes and the reads that a leader has.
func (g *leaderGroup) ask(s *leaderServer) {
	if len(s.writes) > 0 && len(s.under) == 0 && s.CanBroadcast() {
		if err := s.Broadcast(make([]byte, len(s.writes)*(keyBytes+g.load.bytes))); err != nil {
			g.err = err
			return
		}
		s.under, s.writes = s.writes, nil
	}
	if len(s.reads) > 0 && len(s.checked) == 0 {
		if number, err := s.Barrier(); err == nil {
			s.check, s.checked, s.reads = number, s.reads, nil
		}
	}
}

// requestBytes and answerBytes are the sizes of datagrams.
func (g *leaderGroup) requestBytes(write bool) int {
	if write {
		return keyBytes + g.load.bytes
	}
	return keyBytes
}

func (g *leaderGroup) answerBytes(write bool) int {
	if write {
		return 1
	}
	return g.load.bytes
}

// answer sends the answers to requests, one after the other.
func (g *leaderGroup) answer(s *leaderServer, seat int, now time.Duration, all []leaderRequest) {
	for _, r := range all {
		bytes := g.answerBytes(r.write)
		datagram := g.model.DatagramOf(bytes)
		s.busy = max(s.busy, now) + datagram.Overhead
		arrives := s.busy + g.model.DatagramTime(bytes) - datagram.Overhead
		g.network.After(arrives-now, func() {
			if c := r.client; c.number == r.number {
				c.leader = seat
				g.answered(g.network.Now(), g.network.Now()-c.began, c.write)
				g.next(c)
			}
		})
	}
}

// next makes a client ask for the next thing.
func (g *leaderGroup) next(c *leaderClient) {
	c.number++
	c.began, c.write = g.network.Now(), c.random.Float64() < g.load.writes
	g.send(c)
}

// send sends a client's request to the leader that it knows, and to all servers if it knows none.
// It sends the request again if no answer comes.
func (g *leaderGroup) send(c *leaderClient) {
	r := leaderRequest{c, c.number, c.write}
	bytes := g.requestBytes(c.write)
	way := g.model.DatagramTime(bytes) - g.model.DatagramOf(bytes).Overhead // the receiver's
	for seat, s := range g.seats {
		if s != nil && (c.leader == seat || c.leader < 0) {
			g.network.After(way, func() {
				if !s.gone {
					s.inbox = append(s.inbox, r)
				}
			})
		}
	}
	g.network.After(clientPatience, func() {
		if c.number == r.number {
			c.leader = -1
			g.send(c)
		}
	})
}

// operate makes a leader take the next step to the group that the operator wants. Servers that are
// dead are removed after failedBeats heartbeats that failed.
func (g *leaderGroup) operate(s *leaderServer, now time.Duration) error {
	if !s.Leading() {
		return nil
	}
	c := s.Configuration()
	var gone []order.ServerID
	for seat, want := range g.want {
		has := c.Seats[seat].Peer
		died, dead := g.dead[seat]
		switch {
		case dead:
			if has == want && now > max(died, s.since)+failedBeats*(leaderBeat+accessTimeout) {
				gone = append(gone, order.ServerID(seat))
			}
		case has == want || seat >= g.size:
		case has != (rdmanet.Peer{}):
			gone = append(gone, order.ServerID(seat)) // an earlier life
		case c.Phase == dare.Stable:
			if err := refused(s.Add(order.ServerID(seat), want)); err != nil {
				return err
			}
		}
	}
	if len(gone) > 0 {
		if err := refused(s.Remove(gone...)); err != nil {
			return err
		}
	}
	if c.Phase == dare.Stable && c.Size > g.size {
		return refused(s.Shrink(g.size))
	}
	return nil
}

// refused returns an error that does not pass by itself.
func refused(err error) error {
	if errors.Is(err, dare.ErrUnsettled) || errors.Is(err, dare.ErrSeat) {
		return nil
	}
	return err
}
