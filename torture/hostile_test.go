//go:build linux

package torture

import (
	"context"
	"crypto/ed25519"
	cryptorand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// garbage returns random bytes.
func garbage(random *rand.Rand, size int) []byte {
	bytes := make([]byte, size)
	for i := range bytes {
		bytes[i] = byte(random.Uint32())
	}
	return bytes
}

// peersOf returns the members of a shard in the form for the fabric, without member but.
func (s *shard) peersOf(t *testing.T, but int) (ids []rdmanet.PeerID,
	members map[rdmanet.PeerID]string) {
	t.Helper()
	members = map[rdmanet.PeerID]string{}
	for i, h := range s.homes {
		id, err := p2p.PeerID(h.Key.Public().(ed25519.PublicKey))
		if err != nil {
			t.Fatal(err)
		}
		if i != but {
			ids, members[id] = append(ids, id), h.FabricAddress()
		}
	}
	return ids, members
}

// unharmed checks that these nodes are alive, order, and take writes.
func (s *shard) unharmed(p *party, name string, which ...int) {
	s.t.Helper()
	s.alive(which...)
	for _, i := range which {
		p.at(s.clientOf(i)).post(s.t, p.put(name, testnet.Name(i)), ledgerdv1.Level_LEVEL_DURABLE)
	}
	s.same(which...)
	s.alive(which...)
}

// TestHostileBytes sends raw bytes to all ports, and connects as a stranger with a key that is no
// member's.
func TestHostileBytes(t *testing.T) {
	t.Parallel()
	t.Logf("-seed %d", *seedFlag)
	random := rand.New(rand.NewPCG(*seedFlag, 3))
	s := newRunningShard(t, 3)
	acme := s.newParty("acme", []string{"cash"}, 0)
	for _, h := range s.homes {
		for _, address := range []string{h.FabricAddress(), h.Config.API.Listen} {
			for _, bytes := range [][]byte{nil, {0}, []byte("GET / HTTP/1.1\r\n\r\n"),
				[]byte("\x13/multistream/1.0.0\n\x07/noise\n"), garbage(random, 100),
				garbage(random, 1<<20)} {
				connection, err := net.DialTimeout("tcp", address, 10*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				if err := connection.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
					t.Fatal(err)
				}
				// The other side may hang up in the middle, and should.
				_, _ = connection.Write(bytes)
				_ = connection.Close()
			}
		}
	}
	s.unharmed(acme, "after-bytes", s.all()...)

	_, key, err := ed25519.GenerateKey(cryptorand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ids, members := s.peersOf(t, -1)
	stranger := fabricHost(t, p2p.Options{PrivateKey: key, Listen: "127.0.0.1:0", Members: members,
		MendTimeout: 2 * time.Second})
	for k, id := range ids {
		lane, err := stranger.Lane(id, lanes[k])
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		if lane.Send(ctx, garbage(random, 1000)) == nil && lane.Flushed(ctx) == nil {
			t.Errorf("a stranger's frame was taken on lane %s", lanes[k])
		}
		cancel()
	}
	s.unharmed(acme, "after-the-stranger", s.all()...)
	s.exports(s.all()...)
}

// TestHostileMember uses the stolen key of a member that is away to send nonsense on every lane.
func TestHostileMember(t *testing.T) {
	t.Parallel()
	t.Logf("-seed %d", *seedFlag)
	random := rand.New(rand.NewPCG(*seedFlag, 4))
	s := newRunningShard(t, 4)
	acme := s.newParty("acme", []string{"cash"}, 0)
	const stolen = 3
	s.stop(stolen)
	others := s.others(stolen)
	s.unharmed(acme, "before", others...)
	before, _ := s.exports(others...)

	ids, members := s.peersOf(t, stolen)
	h := s.homes[stolen]
	impostor := fabricHost(t, p2p.Options{PrivateKey: h.Key, Listen: h.FabricAddress(),
		Members: members, MendTimeout: 2 * time.Second})
	// It records the others' frames, to send them back truncated.
	heard := &hearing{frames: map[string][][]byte{}}
	for _, lane := range lanes {
		if err := impostor.Receive(lane, func(_ rdmanet.Peer, frames [][]byte) {
			heard.add(lane, frames)
		}); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 3 {
		for _, id := range ids {
			for _, name := range lanes {
				s.speak(impostor, id, name, nonsense(random, name, heard))
			}
		}
		s.unharmed(acme, fmt.Sprintf("during-%d", round), others...)
	}
	for _, i := range others {
		if !strings.Contains(s.log(i), "level=ERROR") && !strings.Contains(s.log(i), "level=WARN") {
			t.Errorf("node %d does not mention the nonsense in its log", i)
		}
		if strings.Contains(s.log(i), "panic") {
			t.Errorf("node %d panicked", i)
		}
	}
	if after, _ := s.exports(others...); !strings.HasPrefix(after, before) {
		t.Error("the chain changed where it was written already")
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = impostor.Close(ended) // at once
	s.start(stolen)
	s.ordering(s.all()...)
	s.unharmed(acme, "afterwards", s.all()...)
	s.exports(s.all()...)
	s.stop(s.all()...)
	s.verified(s.all()...)
}

// lanes are the lanes that nodes listen on.
var lanes = []string{"order", "control", "blocks"}

// hearing holds the frames that the impostor received, up to a limit.
type hearing struct {
	mutex  sync.Mutex
	frames map[string][][]byte
}

func (h *hearing) add(lane string, frames [][]byte) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	for _, frame := range frames {
		if len(h.frames[lane]) < 200 {
			h.frames[lane] = append(h.frames[lane], frame)
		}
	}
}

func (h *hearing) on(lane string) [][]byte {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return slices.Clone(h.frames[lane])
}

// nonsense returns frames for a lane: empty ones, noise of all sizes, noise after each kind of
// message, and true messages that are truncated or extended.
func nonsense(random *rand.Rand, lane string, heard *hearing) [][]byte {
	frames := [][]byte{{}, {0}, garbage(random, 1<<20)}
	for kind := range 16 {
		for _, size := range []int{0, 1, 7, 8, 33, 200} {
			frames = append(frames, append([]byte{byte(kind)}, garbage(random, size)...))
		}
	}
	for _, truth := range heard.on(lane) {
		if len(truth) > 2 {
			frames = append(frames, truth[:1+random.IntN(len(truth)-1)],
				slices.Concat(truth, garbage(random, 5)))
		}
	}
	return frames
}

// speak sends frames one at a time. If the other side breaks the lane, it is opened again; it may
// break with each frame.
func (s *shard) speak(from rdmanet.Host, to rdmanet.PeerID, name string, frames [][]byte) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, frame := range frames {
		lane, err := from.Lane(to, name)
		if err != nil {
			s.t.Fatal(err)
		}
		_ = lane.Send(ctx, frame) // the other side should cut it off
	}
	if lane, err := from.Lane(to, name); err == nil {
		flushed, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_ = lane.Flushed(flushed) // as above
	}
}
