// Command game shows a multiplayer game without a central server [Poke19, section 5.7.3]. Servers
// share 512 players. A frame lasts 50 ms. In each frame every server A-broadcasts what its players
// did, and applies what all players did to its own copy of the world, in the agreed order. One
// frame is one round.
//
//	go run ./examples/game
//	go run ./examples/game --actions 400 --servers 16
//
// The figures are the dissertation's: 20 frames a second, 200 actions a minute for each player, or
// 400 for experts, and 40 bytes for an action. It measured an agreement latency for 512 players of
// 28 ms with 200 actions and of 38 ms with 400, over TCP on a Cray XC40 (figure 5.13a).
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
	frameTime  = 50 * time.Millisecond
	actionSize = 40 // bytes
	headerSize = 4  // bytes: the number of the frame
	// patience is how long the slowest server may take for a frame before the game is given up.
	patience = 30 * time.Second
)

// options is the size of a game.
type options struct {
	players, servers, frames int
	actions                  float64       // of a player, a minute
	period                   time.Duration // between two frames
}

func main() {
	o := options{period: frameTime}
	flag.IntVar(&o.players, "players", 512, "number of players")
	flag.IntVar(&o.servers, "servers", 8, "number of servers that share the players")
	flag.IntVar(&o.frames, "frames", 100, "number of frames")
	flag.Float64Var(&o.actions, "actions", 200, "actions of a player a minute")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, o); err != nil {
		log.Print(err)
		os.Exit(1)
	}
}

// run plays the frames and compares the servers' worlds after each of them.
func run(ctx context.Context, out io.Writer, o options) (err error) {
	if o.players < 1 || o.players > cells || o.servers < 1 || o.frames < 1 || o.actions < 0 {
		return fmt.Errorf("want 1 to %d players, and at least one server and one frame", cells)
	}
	crowd := &players{random: rand.New(rand.NewPCG(1, 2)), messages: make([][]byte, o.servers)}
	played := make(chan result, o.servers)
	servers := make([]*server, o.servers)
	for i := range servers {
		servers[i] = &server{self: order.ServerID(i), players: crowd,
			world: newWorld(o.players), ready: make(chan struct{}, 1), played: played}
	}
	// AllConcur+ would wait for later rounds before it A-delivers one. AllConcur does not.
	g, err := group.Start(allconcur.EngineAllConcur, servers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()

	ticker := time.NewTicker(o.period)
	defer ticker.Stop()
	var latencies []time.Duration
	var world uint64
	actions := 0
	for frame := range uint32(o.frames) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		begun := time.Now()
		actions += crowd.act(frame, o)
		for _, s := range servers {
			select {
			case s.ready <- struct{}{}:
			default: // the driver has yet to take the last signal
			}
		}
		if world, err = agree(ctx, g, played, frame, o.servers); err != nil {
			return err
		}
		latencies = append(latencies, time.Since(begun))
	}
	slices.Sort(latencies)
	fmt.Fprintf(out, "%d players at %d servers: %d frames, %d actions\n", o.players, o.servers,
		o.frames, actions)
	fmt.Fprintf(out, "all servers had the same world after every frame; the last is %016x\n", world)
	_, err = fmt.Fprintf(out, "latency of a frame: median %v, worst %v, of %v\n",
		latencies[len(latencies)/2].Round(time.Microsecond),
		latencies[len(latencies)-1].Round(time.Microsecond), frameTime)
	return err
}

// agree waits until all servers have played a frame, and returns the world after it. It returns an
// error if two servers differ.
func agree(ctx context.Context, g *group.Group, played <-chan result, frame uint32,
	servers int) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var first result
	for i := range servers {
		select {
		case next := <-played:
			if i == 0 {
				first = next
			}
			if next.frame != frame || next.world != first.world {
				return 0, fmt.Errorf("frame %d: server %d has world %016x after frame %d, server "+
					"%d has %016x", frame, next.server, next.world, next.frame, first.server,
					first.world)
			}
		case err := <-g.Halted():
			return 0, err
		case <-ctx.Done():
			return 0, fmt.Errorf("frame %d: %w", frame, ctx.Err())
		}
	}
	return first.world, nil
}

// players stands for the players of all servers. All servers see a frame's actions at the same
// moment. With a clock for each server, a server whose clock is late A-broadcasts an empty message,
// and its players' actions go into the next round.
type players struct {
	mutex    sync.Mutex
	random   *rand.Rand
	messages [][]byte // that each server has yet to A-broadcast
}

// act makes each server's message of a frame, and returns the number of actions. Player p plays at
// server p mod n.
func (p *players) act(frame uint32, o options) int {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for server := range p.messages {
		p.messages[server] = binary.LittleEndian.AppendUint32(nil, frame)
	}
	chance := o.actions * frameTime.Minutes()
	total := 0
	for player := range o.players {
		if p.random.Float64() >= chance {
			continue
		}
		var action [actionSize]byte
		binary.LittleEndian.PutUint32(action[0:], uint32(player))
		action[4] = byte(p.random.IntN(len(directions)))
		message := &p.messages[player%o.servers]
		*message = append(*message, action[:]...)
		total++
	}
	return total
}

// take returns a server's message, once.
func (p *players) take(server order.ServerID) []byte {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	message := p.messages[server]
	p.messages[server] = nil
	return message
}

// result is the world of a server after a frame.
type result struct {
	server order.ServerID
	frame  uint32
	world  uint64 // a digest
}

// server is one server of the game.
type server struct {
	self    order.ServerID
	players *players
	world   *world // belongs to Deliver
	ready   chan struct{}
	played  chan<- result
}

// Next returns the message of the frame, once.
func (s *server) Next(int) []byte { return s.players.take(s.self) }

// Ready receives a value in every frame.
func (s *server) Ready() <-chan struct{} { return s.ready }

// Deliver plays the frames.
func (s *server) Deliver(ctx context.Context, rounds []order.Delivery) error {
	for _, round := range rounds {
		var frame uint32
		for _, message := range round.Messages {
			if len(message.Payload) < headerSize {
				return fmt.Errorf("round %d: server %d has no message", round.Round, message.Origin)
			}
			frame = binary.LittleEndian.Uint32(message.Payload)
			for action := range slices.Chunk(message.Payload[headerSize:], actionSize) {
				s.world.move(binary.LittleEndian.Uint32(action), directions[action[4]])
			}
		}
		select {
		case s.played <- result{server: s.self, frame: frame, world: s.world.digest()}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
