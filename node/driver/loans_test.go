package driver_test

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/node/driver"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// borrower is the pool and the pipeline of a server whose frames are lent. It checks each payload.
type borrower struct {
	self     order.ServerID
	messages uint64 // of each server
	ready    chan struct{}
	keeps    bool // the planted bug: it reads payloads once more after a later delivery

	mu    sync.Mutex
	sent  uint64
	got   []uint64 // by origin
	calls int
	kept  []order.Message
	wrong error
}

// payloadSize is mostly small. Large ones fill the fabric's buffers.
func payloadSize(number uint64) int { return 20 + int(number*7919%40_000) }

func (b *borrower) Next(int) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sent == b.messages {
		return nil
	}
	payload := make([]byte, payloadSize(b.sent))
	binary.BigEndian.PutUint64(payload, b.sent)
	for i := 8; i < len(payload); i++ {
		payload[i] = byte(b.sent) + byte(b.self) + byte(i)
	}
	b.sent++
	return payload
}

func (b *borrower) Ready() <-chan struct{} { return b.ready }

func (b *borrower) Borrows() {}

func (b *borrower) Deliver(_ context.Context, deliveries []order.Delivery) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range deliveries {
		for _, message := range deliveries[i].Messages {
			if len(message.Payload) == 0 {
				continue
			}
			b.check(message, b.got[message.Origin])
			b.got[message.Origin]++
			if b.keeps {
				b.kept = append(b.kept, message)
			}
		}
	}
	if len(b.kept) > 200 {
		for _, message := range b.kept {
			b.check(message, binary.BigEndian.Uint64(message.Payload))
		}
		b.kept = nil
	}
	return nil
}

func (b *borrower) check(message order.Message, number uint64) {
	payload := message.Payload
	right := len(payload) == payloadSize(number) && binary.BigEndian.Uint64(payload) == number
	for i := 8; right && i < len(payload); i++ {
		right = payload[i] == byte(number)+byte(message.Origin)+byte(i)
	}
	if !right && b.wrong == nil {
		b.wrong = fmt.Errorf("%d bytes that begin with %x in the place of message %d of server %d",
			len(payload), payload[:min(len(payload), 16)], number, message.Origin)
	}
}

// TryDeliver has no room at times.
func (b *borrower) TryDeliver(deliveries []order.Delivery) (bool, error) {
	b.mu.Lock()
	b.calls++
	full := b.calls%7 == 0
	b.mu.Unlock()
	if full {
		return false, nil
	}
	return true, b.Deliver(context.Background(), deliveries)
}

func (b *borrower) state() (over bool, wrong error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	over = true
	for _, got := range b.got {
		over = over && got == b.messages
	}
	return over, b.wrong
}

// lendingStory plays rounds over p2p, where frames are overwritten when the driver gives them back.
// Connections break now and then if severs is set. plant changes a server's configuration.
func lendingStory(t *testing.T, severs bool, plant func(*driver.Config)) error {
	const servers, messages = 4, 300
	hosts := make([]*p2p.Host, servers)
	peers := make([]rdmanet.PeerID, servers)
	members := make(map[rdmanet.PeerID]string)
	for i := range hosts {
		key, err := p2p.NewIdentity(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if hosts[i], err = p2p.New(p2p.Options{PrivateKey: key, Listen: "127.0.0.1:0",
			MendTimeout: patience, Trusted: true, Poison: true}); err != nil {
			t.Fatal(err)
		}
		defer closeAtOnce(hosts[i])
		peers[i], members[hosts[i].ID()] = hosts[i].ID(), hosts[i].Address()
	}
	reliable, err := digraph.Complete(servers)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 100)
	var all []*borrower
	group := driver.Group{Run: 1, FirstRound: 1, Members: []order.ServerID{0, 1, 2, 3}}
	for i, host := range hosts {
		if err := host.SetMembers(members); err != nil {
			t.Fatal(err)
		}
		b := &borrower{self: order.ServerID(i), messages: messages, ready: make(chan struct{}, 1),
			got: make([]uint64, servers)}
		all = append(all, b)
		config := driver.Config{
			Host: host, Self: b.self, Peers: peers, FrameRun: allconcur.FrameGeneration,
			NewEngine: func(group driver.Group, place order.ServerID) (order.Broadcaster, error) {
				return allconcur.New(allconcur.Config{Engine: allconcur.EngineAllConcurPlus,
					Self: place, Servers: servers, Reliable: reliable, Generation: group.Run,
					FirstRound: group.FirstRound, MaxPayload: 1 << 20})
			},
			Source: b, Sink: b, Logger: slog.New(complaints{slog.DiscardHandler, failed}),
		}
		plant(&config)
		d, err := driver.New(config)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if err := d.Activate(group); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(patience); ; {
		over := 0
		for i, b := range all {
			done, wrong := b.state()
			if wrong != nil {
				return fmt.Errorf("server %d: %w", i, wrong)
			}
			if done {
				over++
			}
		}
		if over == servers {
			return nil
		}
		select {
		case err := <-failed:
			return err
		case <-time.After(3 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("not all messages are A-delivered in time")
		}
		if !severs || mathrand.IntN(10) > 0 {
			continue
		}
		// There may be no connection at the moment.
		_ = hosts[mathrand.IntN(servers)].Sever(peers[mathrand.IntN(servers)])
	}
}

// complaints passes on what a driver logs as an error: frames that are none, an engine that halts.
type complaints struct {
	slog.Handler
	failed chan<- error
}

func (complaints) Enabled(context.Context, slog.Level) bool { return true }

func (c complaints) WithAttrs([]slog.Attr) slog.Handler { return c }

func (c complaints) Handle(_ context.Context, record slog.Record) error {
	if record.Level >= slog.LevelError {
		select {
		case c.failed <- errors.New(record.Message):
		default:
		}
	}
	return nil
}

func closeAtOnce(host *p2p.Host) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = host.Close(ended) // it gives up what is left
}

// TestLentFrames: no server reads a frame after it gave it back, whatever breaks meanwhile.
func TestLentFrames(t *testing.T) {
	t.Parallel()
	if err := lendingStory(t, true, func(*driver.Config) {}); err != nil {
		t.Fatal(err)
	}
}

// TestPlantedLateRead: TestLentFrames can fail. Its sink reads payloads after it has returned.
func TestPlantedLateRead(t *testing.T) {
	t.Parallel()
	err := lendingStory(t, false, func(c *driver.Config) { c.Sink.(*borrower).keeps = true })
	if err == nil {
		t.Fatal("the planted bug goes unnoticed")
	}
	t.Logf("it says: %v", err)
}
