package protected

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/sim/fabric"
)

// server is the smallest user of a log: it keeps what it applies. It is a Machine.
type server struct {
	host    rdmanet.RegionHost
	ways    *Ways
	boards  *Boards
	log     *Log
	applied []string
	leads   int
}

var _ Machine = (*server)(nil)

func (s *server) Apply(e Entry) {
	if !e.NoOp() {
		s.applied = append(s.applied, string(s.log.Bytes(e)))
	}
}

func (s *server) Room() bool { return true }
func (s *server) Leads()     { s.leads++ }
func (s *server) StepsDown() {}

func (s *server) Poll(now time.Duration) bool {
	if s.log.Halted() != "" {
		return false
	}
	busy := s.Complete(now)
	asked, _ := s.log.Answer()
	busy = s.log.Work() || asked || busy
	busy = s.log.Apply() || busy
	if s.log.Leading() {
		if s.log.Unannounced() && s.log.Room() {
			s.log.Announce()
			busy = true
		}
		busy = s.log.Replicate() || busy
	}
	busy = s.boards.Drive(s.ways) || busy
	if err := s.ways.Flush(); err != nil {
		s.log.Halt(err.Error())
	}
	return busy
}

func (s *server) Complete(now time.Duration) bool {
	return s.log.Halted() == "" && s.ways.Complete(now, func(p Post, err error) {
		if row, is := p.Way.Owner.(*Row); is {
			row.Completed(s.ways, err)
			return
		}
		s.log.Completed(p, err)
	})
}

func (s *server) Wanted() []Want { return s.ways.Wanted() }

func (s *server) Attached(number uint64, attachment rdmanet.Attachment, err error) {
	way, err := s.ways.Attached(number, attachment, err)
	if way == nil {
		return
	}
	if row, is := way.Owner.(*Row); is {
		row.Answered(s.ways, err)
		return
	}
	s.log.Answered(way, err)
}

func (s *server) Regions() []rdmanet.Region {
	return []rdmanet.Region{s.boards.Region(), s.log.Region()}
}

func (s *server) Outstanding() int { return s.ways.Outstanding() }
func (s *server) String() string   { return s.log.String() }

func (s *server) Close() error {
	s.log.Detach()
	s.boards.Detach(s.ways)
	return s.ways.Close()
}

// attach makes the attachments that the server wants.
func (s *server) attach() {
	for _, want := range s.Wanted() {
		attachment, err := s.host.Attach(context.Background(), want.Peer, want.Region)
		s.Attached(want.Number, attachment, err)
	}
}

// group is a group of servers with a log in virtual time, polled by the test.
type group struct {
	network *fabric.Network
	servers []*server
}

// newGroup returns a group whose servers run on what wrap makes of their hosts, if it is not nil.
func newGroup(t *testing.T, seed uint64, size int, config LogConfig,
	wrap func(number int, host rdmanet.RegionHost) rdmanet.RegionHost) *group {
	t.Helper()
	g := &group{network: fabric.New(fabric.Options{Seed: seed})}
	t.Cleanup(g.network.Close)
	config.Name, config.WordExcluded, config.Quiet = "log", WordsShared, 50*time.Microsecond
	for field, value := range map[*int]int{&config.Slots: 1024, &config.Window: 64} {
		if *field == 0 {
			*field = value
		}
	}
	var hosts []rdmanet.RegionHost
	for i := range size {
		host, err := g.network.Start(rdmanet.PeerID(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		config.Peers = append(config.Peers, host.Peer())
		config.Processes = append(config.Processes, i)
		hosts = append(hosts, host)
		if wrap != nil {
			hosts[i] = wrap(i, host)
		}
	}
	for i, host := range hosts {
		own := config
		own.Self = order.ServerID(i)
		s := &server{host: host, boards: NewBoards("board", i, size, WordsShared+1)}
		s.log = NewLog(own, s.boards, s)
		var err error
		if s.ways, err = NewWays(host, 512, time.Millisecond); err != nil {
			t.Fatal(err)
		}
		s.log.Use(s.ways)
		if err := s.boards.Expose(host); err != nil {
			t.Fatal(err)
		}
		if err := s.log.Expose(host); err != nil {
			t.Fatal(err)
		}
		g.servers = append(g.servers, s)
	}
	return g
}

// poll makes all servers work, and makes the attachments that they want.
func (g *group) poll() {
	for _, s := range g.servers {
		s.Poll(g.network.Now())
		s.attach()
	}
}

// tick makes sure that there is always a next event.
func (g *group) tick() { g.network.After(5*time.Microsecond, g.tick) }

// leaveEntry puts an entry into a server's log, as if an earlier leader had left it behind.
func (g *group) leaveEntry(server int, counter, index, number uint64, entry []byte) {
	g.servers[server].log.put(Entry{Timestamp: MakeTimestamp(counter, 9), Origin: 2,
		Length: len(entry), Number: number, Index: index}, entry)
}

// leaveAt puts an entry into a server's log, whose number is its index.
func (g *group) leaveAt(server int, counter, index uint64, entry []byte) {
	g.leaveEntry(server, counter, index, index, entry)
}

// TestGroupOrders appends entries at changing leaders, some of which crash. All servers that are
// left apply the same entries in the same order.
func TestGroupOrders(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		g := newGroup(t, seed, 3, LogConfig{EntryMax: 300, Slots: 8, Window: 2}, nil)
		g.tick()
		leader, number := g.servers[0], uint64(0)
		until := func(what string, until func() bool) {
			t.Helper()
			for end := g.network.Now() + 100*time.Millisecond; !until(); g.poll() {
				g.network.Step()
				if g.network.Now() > end {
					t.Fatalf("seed %d, not so: %s: %v", seed, what, leader)
				}
			}
		}
		lead := func(next *server) {
			leader = next
			for _, s := range g.servers {
				s.log.Lead(next.log.config.Self)
			}
			until("it leads", next.log.Leading)
		}
		feed := func(entries int) {
			for range entries {
				until("there is room", leader.log.Room)
				number++
				leader.log.Append(1, number, make([]byte, 40*(number%5)))
			}
			until("all is ordered", func() bool { return leader.log.Ordered() >= leader.log.End() })
		}
		lead(g.servers[0])
		feed(20) // the log wraps around
		lead(g.servers[2])
		feed(5)
		g.network.Crash("2")
		g.servers = g.servers[:2]
		lead(g.servers[1])
		for _, s := range g.servers {
			s.log.Exclude(2)
		}
		feed(20)
		until("all are told", func() bool {
			return len(g.servers[0].applied) == int(number) &&
				len(g.servers[1].applied) == int(number)
		})
		for i, entry := range g.servers[0].applied {
			if entry != g.servers[1].applied[i] || len(entry) != 40*((i+1)%5) {
				t.Fatalf("seed %d: entry %d is %d bytes at one server and %d at the other", seed,
					i+1, len(entry), len(g.servers[1].applied[i]))
			}
		}
		if s := leader.log.Status(); s.Excluded[0] != 2 || !s.Leading || leader.leads != 1 {
			t.Errorf("seed %d: it led %d times: %+v", seed, leader.leads, s)
		}
		if e, has := leader.log.At(leader.log.End()); !has || e.Index != leader.log.End() {
			t.Errorf("seed %d: the last entry is %+v", seed, e)
		}
		if err := leader.Close(); err != nil {
			t.Error(err)
		}
	}
}
