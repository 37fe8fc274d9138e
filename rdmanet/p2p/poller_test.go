package p2p_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/fabrictest"
)

func TestPromptFabric(t *testing.T) { fabrictest.RunPrompt(t, newFabric) }

// polledCases are the cases in which the poller's part is large.
var polledCases = []string{"fifo", "window of bytes", "frame sizes", "severed connections",
	"severed while it receives", "sender restarts", "close acknowledges"}

func TestTrustedPromptFabric(t *testing.T) {
	fabrictest.RunPrompt(t, newTrustedFabric, polledCases...)
}

func TestLocalPromptFabric(t *testing.T) {
	fabrictest.RunPrompt(t, newLocalFabric, polledCases...)
}

// TestPromptFabricWithoutPoller plays some cases as a system without a poller does.
func TestPromptFabricWithoutPoller(t *testing.T) {
	fabrictest.RunPrompt(t, func(t testing.TB, config fabrictest.Config) fabrictest.Fabric {
		f := newFabric(t, config).(*fabric)
		f.noPoller = true
		return f
	}, "fifo", "window of frames", "severed while it receives", "close acknowledges")
}

// TestLocalPromptFabricWithoutPoller plays them without rings in shared memory.
func TestLocalPromptFabricWithoutPoller(t *testing.T) {
	fabrictest.RunPrompt(t, func(t testing.TB, config fabrictest.Config) fabrictest.Fabric {
		f := newLocalFabric(t, config).(*fabric)
		f.noPoller = true
		return f
	}, "fifo", "window of frames", "severed while it receives", "close acknowledges")
}

// TestPlantedPromptFaults proves that the suite finds frames that a host loses or repeats between
// the two functions of a prompt receiver.
func TestPlantedPromptFaults(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("there is no poller")
	}
	for name, plant := range map[string]func(*rdmanet.PromptReceiver){
		"loses what is left": func(r *rdmanet.PromptReceiver) {
			r.Receive = func(rdmanet.Peer, [][]byte) {}
		},
		"repeats what was taken": func(r *rdmanet.PromptReceiver) {
			try := r.TryReceive
			r.TryReceive = func(from rdmanet.Peer, frames [][]byte) int {
				return min(try(from, frames), len(frames)-1)
			}
		},
		"never waits": func(r *rdmanet.PromptReceiver) {
			try := r.TryReceive
			r.TryReceive = func(from rdmanet.Peer, frames [][]byte) int {
				try(from, frames)
				return len(frames)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := fabrictest.CheckPrompt(t, newTrustedFabric, "fifo", plant)
			if err == nil {
				t.Fatal("the case does not find the fault")
			}
			t.Logf("the case says: %v", err)
		})
	}
}

// TestPromptStress has hosts send each other frames from their turns, over connections that break
// all the time, to receivers that are full at times.
func TestPromptStress(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		factory fabrictest.Factory
		borrows bool
	}{
		"sealed": {newFabric, false}, "trusted": {newTrustedFabric, false},
		"sealed, lent": {newFabric, true}, "trusted, lent": {newTrustedFabric, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stress(t, c.factory, c.borrows)
		})
	}
}

// TestPromptStressOnOneProcessor repeats the test where goroutines only run in turns.
func TestPromptStressOnOneProcessor(t *testing.T) {
	t.Parallel()
	again := exec.Command(os.Args[0], "-test.run", "^TestPromptStress$", "-test.count", "1")
	again.Env = append(os.Environ(), "GOMAXPROCS=1")
	if output, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

func stress(t *testing.T, factory fabrictest.Factory, borrows bool) {
	const hosts, frames = 3, 1_000
	fabric := factory(t, fabrictest.Config{Members: hosts, WindowFrames: 256,
		MendTimeout: time.Minute})
	members := make([]*stressed, hosts)
	for i := range members {
		host, err := fabric.Start(i)
		if err != nil {
			t.Fatal(err)
		}
		members[i] = &stressed{host: host, frames: frames, lanes: make([]rdmanet.Lane, hosts),
			sent: make([]uint64, hosts), got: map[rdmanet.PeerID]uint64{}}
		err = host.(rdmanet.PromptHost).ReceivePrompt("stress", members[i].receiver(borrows))
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, m := range members {
		for j := range members {
			if i == j {
				continue
			}
			var err error
			if m.lanes[j], err = m.host.Lane(fabric.ID(j), "stress"); err != nil {
				t.Fatal(err)
			}
		}
	}
	deadline := time.Now().Add(3 * time.Minute)
	for round := 0; ; round++ {
		done := 0
		for _, m := range members {
			m.turn() // a turn may have found no room, and no frame may come any more
			over, wrong := m.state()
			if wrong != nil {
				t.Fatal(wrong)
			}
			if over {
				done++
			}
		}
		if done == hosts {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("not all frames arrive in time")
		}
		if round%10 == 9 {
			i := rand.IntN(hosts)
			fabric.Sever(i, (i+1)%hosts)
		}
		time.Sleep(time.Millisecond)
	}
}

// stressed is a host that sends from its turns.
type stressed struct {
	host   rdmanet.Host
	frames uint64

	mu    sync.Mutex
	lanes []rdmanet.Lane
	sent  []uint64
	got   map[rdmanet.PeerID]uint64
	calls int
	wrong error
	kept  []keptFrames // the oldest first
}

// keptFrames are lent frames that a receiver still reads.
type keptFrames struct {
	frames [][]byte
	loan   rdmanet.Loan
}

// receiver returns the receiver of the host's lanes. If its frames are lent, it keeps some of them
// for a while.
func (m *stressed) receiver(borrows bool) rdmanet.PromptReceiver {
	var lent func(rdmanet.Peer, [][]byte, rdmanet.Loan) int
	if borrows {
		lent = m.borrow
	}
	return rdmanet.PromptReceiver{
		TryReceive: func(from rdmanet.Peer, frames [][]byte) int {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.calls++; m.calls%7 == 0 {
				frames = frames[:rand.IntN(len(frames))] // it is full
			}
			m.take(from, frames)
			return len(frames)
		},
		TryReceiveLent: lent,
		Receive: func(from rdmanet.Peer, frames [][]byte) {
			runtime.Gosched() // it waits for room
			m.mu.Lock()
			defer m.mu.Unlock()
			m.take(from, frames)
		},
		Turn: m.turn,
	}
}

// borrow takes lent frames, and looks at earlier ones again before it releases them.
func (m *stressed) borrow(from rdmanet.Peer, frames [][]byte, loan rdmanet.Loan) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls++; m.calls%7 == 0 {
		frames = frames[:rand.IntN(len(frames))] // it is full
	}
	m.take(from, frames)
	if rand.IntN(2) == 0 {
		loan.Hold()
		m.kept = append(m.kept, keptFrames{slices.Clone(frames), loan})
	}
	for len(m.kept) > 20 {
		for _, frame := range m.kept[0].frames {
			if number := binary.BigEndian.Uint64(frame); m.wrong == nil &&
				(len(frame) != stressSize(number) || frame[len(frame)-1] != byte(number)) {
				m.wrong = fmt.Errorf("a frame was overwritten that is held: it begins with %x",
					frame[:8])
			}
		}
		m.kept[0].loan.Release()
		m.kept = m.kept[1:]
	}
	return len(frames)
}

// take checks frames. The caller holds the lock.
func (m *stressed) take(from rdmanet.Peer, frames [][]byte) {
	for _, frame := range frames {
		number := binary.BigEndian.Uint64(frame)
		if want := m.got[from.ID]; m.wrong == nil && (number != want ||
			len(frame) != stressSize(number) || frame[len(frame)-1] != byte(number)) {
			m.wrong = fmt.Errorf("frame %d of %d bytes arrived in the place of frame %d", number,
				len(frame), want)
		}
		m.got[from.ID]++
	}
}

// turn sends some frames to each other host.
func (m *stressed) turn() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for to, lane := range m.lanes {
		for range 5 {
			if lane == nil || m.sent[to] == m.frames {
				break
			}
			frame := make([]byte, stressSize(m.sent[to]))
			frame[len(frame)-1] = byte(m.sent[to])
			binary.BigEndian.PutUint64(frame, m.sent[to])
			sent, err := lane.TrySend(frame)
			if err != nil && m.wrong == nil {
				m.wrong = err
			}
			if !sent {
				break
			}
			m.sent[to]++
		}
	}
}

// stressSize returns the size of a frame: mostly small, at times more than a socket takes at once.
func stressSize(number uint64) int {
	if number%50 == 49 {
		return 200_000
	}
	return int(9 + number*37%3000)
}

func (m *stressed) state() (over bool, wrong error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	over = len(m.got) == len(m.lanes)-1
	for _, got := range m.got {
		over = over && got == m.frames
	}
	return over, m.wrong
}
