package driver

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// arrival is one frame of the running generation, from the member at that place of the group.
type arrival struct {
	from  order.ServerID
	frame []byte
}

// opinion is what somebody thinks of a member, by its place in the group.
type opinion struct {
	server  order.ServerID
	trusted bool
	cause   error // of a suspicion
	lost    bool  // the inbox found out itself, and takes nothing more from it
}

// inbox is the queue from the lanes' goroutines, many, to the engine's, one. Whoever puts takes the lock once a batch of frames, and so does
// the engine when it takes everything at once.
type inbox struct {
	framesMax, bytesMax, heldMax int
	generationOf                 func([]byte) (uint64, error)
	logger                       *slog.Logger

	// wake holds a value when there is something to take.
	wake chan struct{}

	mu         sync.Mutex
	room       sync.Cond // the inbox was emptied, another generation began, or it was closed
	closed     bool
	generation uint64 // the last one activated
	accepting  bool   // its engine runs
	frames     []arrival
	bytes      int
	opinions   []opinion
	servers    map[rdmanet.PeerID]order.ServerID // replaced, never changed
	peers      []*inboxPeer                      // by place in Config.Peers
}

// inboxPeer is what the inbox knows of one peer.
type inboxPeer struct {
	place       int                 // in the running group, -1 for those who are not in it
	incarnation rdmanet.Incarnation // of the first frame in this generation, 0 before
	silenced    bool                // its frames of this generation are not wanted any more; it may begin a later one before this server does
	banned      bool                // nor are those of later ones: it sent what is no frame
	suspected   bool
	held        []heldFrame // of later generations, in the lane's order
	heldBytes   int
	early       earlySuspicion // of a later generation
}

// earlySuspicion is what the detector says of a run that it watches already and that has yet to begin here; generation 0 stands for nothing.
type earlySuspicion struct {
	generation uint64
	cause      error
}

func (p *inboxPeer) releaseHeld() { p.held, p.heldBytes = nil, 0 }

type heldFrame struct {
	generation  uint64
	incarnation rdmanet.Incarnation
	frame       []byte
}

func newInbox(config Config) (*inbox, error) {
	in := &inbox{
		framesMax: config.InboxFrames, bytesMax: config.InboxBytes, heldMax: config.HeldFrames,
		generationOf: config.FrameGeneration,
		logger:       config.Logger,
		wake:         make(chan struct{}, 1),
	}
	in.room.L = &in.mu
	return in, in.setPeers(config.Peers)
}

// setPeers replaces the peers. One that keeps its place is the same peer; one that is none any more stays one until the running group's end, if it is in that.
func (in *inbox) setPeers(peers []rdmanet.PeerID) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	servers := make(map[rdmanet.PeerID]order.ServerID, len(peers))
	known := make([]*inboxPeer, len(peers))
	for i, peer := range peers {
		if _, twice := servers[peer]; twice {
			return fmt.Errorf("%w: peer %s is listed twice", ErrConfig, peer)
		}
		if peer != "" {
			servers[peer] = order.ServerID(i)
		}
		known[i] = &inboxPeer{place: -1}
	}
	for peer, was := range in.servers {
		old := in.peers[was]
		switch is, listed := servers[peer]; {
		case listed && is == was:
			known[is] = old
		case !listed && old.place >= 0 && int(was) < len(peers) && peers[was] == "":
			servers[peer], known[was] = was, old
		default:
			// A frame of it may wait for room, and is to go nowhere.
			old.banned = true
			old.releaseHeld()
		}
	}
	in.servers, in.peers = servers, known
	in.room.Broadcast()
	return nil
}

// receive is the lanes' receive function. It blocks while there is no room.
func (in *inbox) receive(from rdmanet.Peer, frames [][]byte) {
	in.mu.Lock()
	defer in.mu.Unlock()
	server, known := in.servers[from.ID]
	if !known {
		return
	}
	peer := in.peers[server]
	for _, frame := range frames {
		generation, err := in.generationOf(frame)
		if err != nil {
			in.malformed(server, err)
			continue
		}
		for in.full(peer, generation) {
			in.room.Wait()
		}
		switch {
		case in.closed || peer.banned:
		case generation > in.generation:
			peer.held = append(peer.held, heldFrame{generation, from.Incarnation, frame})
			peer.heldBytes += len(frame)
		case generation == in.generation && in.accepting && !peer.silenced:
			in.accept(server, from.Incarnation, frame)
		}
	}
}

// full tells whether a frame has to wait.
func (in *inbox) full(peer *inboxPeer, generation uint64) bool {
	switch {
	case in.closed || peer.banned:
		return false
	case generation > in.generation:
		return len(peer.held) >= in.heldMax || peer.heldBytes >= in.bytesMax
	default:
		return in.accepting && !peer.silenced && generation == in.generation && (len(in.frames) >= in.framesMax || in.bytes >= in.bytesMax)
	}
}

// accept queues a frame of the running generation.
func (in *inbox) accept(server order.ServerID, incarnation rdmanet.Incarnation, frame []byte) {
	peer := in.peers[server]
	switch {
	case peer.place < 0:
		return
	case peer.incarnation == 0:
		peer.incarnation = incarnation
	case peer.incarnation != incarnation:
		// A process that restarted has forgotten its rounds; it cannot go on in a generation that it began in an earlier life.
		in.silence(server, fmt.Errorf("%w: incarnation %v after %v", rdmanet.ErrReset, incarnation, peer.incarnation))
		return
	}
	in.frames = append(in.frames, arrival{order.ServerID(peer.place), frame})
	in.bytes += len(frame)
	if len(in.frames) == 1 {
		in.signal()
	}
}

// malformed handles bytes that are no frame of any generation.
func (in *inbox) malformed(server order.ServerID, err error) {
	if !in.peers[server].banned && !in.closed {
		in.logger.Error("malformed frame: nothing more is taken from this server in this generation", "server", server, "error", err)
		in.peers[server].banned = true
		in.peers[server].releaseHeld()
		in.silence(server, err)
	}
}

// silence drops whatever else comes from the server of this generation, and suspects it.
func (in *inbox) silence(server order.ServerID, cause error) {
	in.peers[server].silenced = true
	in.noteSuspicion(server, cause, true)
	in.room.Broadcast()
}

func (in *inbox) noteSuspicion(server order.ServerID, cause error, lost bool) {
	peer := in.peers[server]
	if !in.accepting || peer.place < 0 || peer.suspected && !lost {
		return
	}
	peer.suspected = true
	in.opinions = append(in.opinions, opinion{server: order.ServerID(peer.place), cause: cause, lost: lost})
	in.signal()
}

// suspect queues a suspicion of a server that is not suspected.
func (in *inbox) suspect(generation uint64, server order.ServerID, cause error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case int(server) >= len(in.peers):
	case generation == in.generation:
		in.noteSuspicion(server, cause, false)
	case generation > in.generation:
		in.peers[server].early = earlySuspicion{generation, cause}
	}
}

// trust takes a suspicion back.
func (in *inbox) trust(generation uint64, server order.ServerID) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if int(server) >= len(in.peers) {
		return
	}
	peer := in.peers[server]
	if peer.early.generation == generation {
		peer.early = earlySuspicion{}
	}
	if generation != in.generation || !in.accepting || peer.place < 0 || !peer.suspected || peer.silenced {
		return
	}
	peer.suspected = false
	in.opinions = append(in.opinions, opinion{server: order.ServerID(peer.place), trusted: true})
	in.signal()
}

// drop is silence for the engine's goroutine, which knows already.
func (in *inbox) drop(server order.ServerID) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.peers[server].silenced = true
	in.room.Broadcast()
}

func (in *inbox) signal() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// take gives everything that waits, in exchange for an empty slice to fill.
func (in *inbox) take(empty []arrival) ([]arrival, []opinion) {
	in.mu.Lock()
	frames, opinions := in.frames, in.opinions
	in.frames, in.opinions = empty, nil
	in.bytes = 0
	if len(frames) > 0 {
		in.room.Broadcast()
	}
	in.mu.Unlock()
	return frames, opinions
}

// activate begins a generation with the frames that were held for it.
func (in *inbox) activate(group Group) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.generation = group.Generation
	in.accepting = true
	in.clear()
	for i := range in.peers {
		peer := in.peers[i]
		*peer = inboxPeer{place: -1, held: peer.held, heldBytes: peer.heldBytes, early: peer.early}
	}
	for place, member := range group.Members {
		in.peers[member].place = place
	}
	for server, peer := range in.peers {
		if peer.early.generation == in.generation {
			in.noteSuspicion(order.ServerID(server), peer.early.cause, false)
		}
		if peer.early.generation <= in.generation {
			peer.early = earlySuspicion{}
		}
		held := peer.held
		peer.releaseHeld()
		for _, frame := range held {
			switch {
			case frame.generation == in.generation:
				in.accept(order.ServerID(server), frame.incarnation, frame.frame)
			case frame.generation > in.generation:
				peer.held = append(peer.held, frame)
				peer.heldBytes += len(frame.frame)
			}
		}
	}
	in.room.Broadcast()
}

// end drops what waits and what comes of the generation.
func (in *inbox) end() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.accepting = false
	in.clear()
	in.room.Broadcast()
}

func (in *inbox) clear() {
	clear(in.frames)
	in.frames, in.opinions, in.bytes = in.frames[:0], nil, 0
}

// close lets every receive function return, now and later.
func (in *inbox) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
	in.accepting = false
	in.clear()
	for i := range in.peers {
		in.peers[i].releaseHeld()
	}
	in.room.Broadcast()
}
