package figure

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// eonServer is a server of a group that servers join. It has one engine after another, one for each
// eon, and does a driver's work between them [Poke19, section 6.3.3.2]. A joining server asks
// server 0, which puts a mark into its next message. When the round of the mark is A-delivered,
// every engine ends with the round after the next. Then the next eon's engines start, for the
// members that are not removed and the entering servers, over a G_R of their own. Server 0 tells
// the entering servers where the eon begins. The state and the connections of an entering server
// are assumed to be in place, and are not part of the change of eon.
//
// To its caller it is an order.Broadcaster among all servers. An engine knows the eon's members
// only, by their places.
type eonServer struct {
	engineName string
	self       order.ServerID
	overlays   *eonOverlays
	// engine is nil before the server has joined. members are the members of the eon, ascending.
	// whole reports that they are all servers.
	engine  *allconcur.Engine
	run     uint64
	members []order.ServerID
	whole   bool
	removed []order.ServerID
	// asked are the servers that asked this one and are in no mark yet. entering are the servers
	// whose marks are A-delivered in this eon.
	asked, entering []order.ServerID
	delivered       order.Round
	// held are early frames of the next eon.
	held []heldFrame
	// welcomes are for the next Ready. sends, deliveries and messages are what Ready returned.
	welcomes   []order.Send
	sends      []order.Send
	deliveries []order.Delivery
	messages   []order.Message
}

// heldFrame is an early frame.
type heldFrame struct {
	from  order.ServerID
	frame []byte
}

// eonOverlays are the reliable digraphs by the number of members.
type eonOverlays struct {
	servers int
	bySize  map[int]*digraph.Digraph
}

func newEonOverlays(servers int) *eonOverlays {
	return &eonOverlays{servers: servers, bySize: map[int]*digraph.Digraph{}}
}

func (o *eonOverlays) of(size int) (*digraph.Digraph, error) {
	if g := o.bySize[size]; g != nil {
		return g, nil
	}
	g, err := digraph.Reliable(size, digraph.Target{})
	if err != nil {
		return nil, err
	}
	o.bySize[size] = g
	return g, nil
}

// Frames between servers and joining servers. Engines' frames begin with their version, 1.
const (
	frameAsk = 0xfe // one byte
	// frameWelcome is followed by the run's number and its first round, 8 bytes each, and its
	// members, 4 bytes each.
	frameWelcome  = 0xff
	welcomeHeader = 17
	// markSize is the size of a mark, which is appended to a payload of zeros: markByte, the number
	// of the server in 4 bytes, and zeros.
	markSize = 64
	markByte = 1
	// heldMax is the maximum number of frames that wait for the next eon.
	heldMax = 1 << 16
	sponsor = order.ServerID(0)
)

var _ order.Broadcaster = (*eonServer)(nil)

// newEonServer returns a server of the first eon, whose members are all servers.
func newEonServer(engine string, self order.ServerID, overlays *eonOverlays) (*eonServer, error) {
	s := &eonServer{engineName: engine, self: self, overlays: overlays}
	for p := range overlays.servers {
		s.members = append(s.members, order.ServerID(p))
	}
	return s, s.start(0, 1)
}

// start starts the engine of an eon of s.members, and gives it the held frames.
func (s *eonServer) start(run uint64, first order.Round) error {
	reliable, err := s.overlays.of(len(s.members))
	if err != nil {
		return err
	}
	s.run, s.delivered, s.entering, s.removed = run, first-1, nil, nil
	s.whole = len(s.members) == s.overlays.servers
	engine, err := allconcur.New(allconcur.Config{
		Engine: s.engineName, Self: s.place(s.self), Servers: len(s.members), Reliable: reliable,
		Generation: run, FirstRound: first,
		Detector: allconcur.DetectorPerfect, Change: s.changes,
	})
	if err != nil {
		return err
	}
	s.engine = engine
	held := s.held
	s.held = nil
	for _, h := range held {
		if err := s.Receive(h.from, h.frame); err != nil {
			return err
		}
	}
	return nil
}

// place returns a member's place in the eon, or a number past all places.
func (s *eonServer) place(server order.ServerID) order.ServerID {
	if s.whole {
		return server
	}
	place, found := slices.BinarySearch(s.members, server)
	if !found {
		place = len(s.members)
	}
	return order.ServerID(place)
}

// outside translates places into servers.
func (s *eonServer) outside(places []order.ServerID) []order.ServerID {
	if s.whole || len(places) == 0 {
		return places
	}
	servers := make([]order.ServerID, len(places))
	for i, place := range places {
		servers[i] = s.members[place]
	}
	return servers
}

// successors returns the server's successors in the eon's G_R.
func (s *eonServer) successors() []order.ServerID {
	if s.engine == nil {
		return nil
	}
	var servers []order.ServerID
	for _, place := range s.overlays.bySize[len(s.members)].Successors(int(s.place(s.self))) {
		servers = append(servers, s.members[place])
	}
	return servers
}

// join turns the server into one that has yet to join.
func (s *eonServer) join() {
	s.engine = nil
	s.welcomes = append(s.welcomes, order.Send{To: []order.ServerID{sponsor},
		Frame: []byte{frameAsk}})
}

// changes collects the marks of a round. It reports whether there were any.
func (s *eonServer) changes(delivery order.Delivery) bool {
	found := false
	for _, m := range delivery.Messages {
		if size := len(m.Payload); size >= markSize && m.Payload[size-markSize] == markByte {
			s.entering = append(s.entering,
				order.ServerID(binary.LittleEndian.Uint32(m.Payload[size-markSize+1:])))
			found = true
		}
	}
	return found
}

// CanBroadcast reports whether the engine has yet to A-broadcast in its round.
func (s *eonServer) CanBroadcast() bool { return s.engine != nil && s.engine.CanBroadcast() }

// Solicited reports whether a message is due: other servers wait, or a server asked to join.
func (s *eonServer) Solicited() bool {
	return s.CanBroadcast() && (s.engine.Solicited() || len(s.asked) > 0 || len(s.entering) > 0)
}

// Undelivered returns the engine's Undelivered.
func (s *eonServer) Undelivered() bool { return s.engine != nil && s.engine.Undelivered() }

// Broadcast A-broadcasts the payload, with a mark if a server asked to join.
func (s *eonServer) Broadcast(payload []byte) error {
	if s.engine == nil {
		return fmt.Errorf("%w: the server has not joined", order.ErrNotNow)
	}
	if len(s.asked) > 0 {
		marked := make([]byte, len(payload)+markSize)
		copy(marked, payload)
		marked[len(payload)] = markByte
		binary.LittleEndian.PutUint32(marked[len(payload)+1:], uint32(s.asked[0]))
		payload, s.asked = marked, s.asked[1:]
	}
	return s.engine.Broadcast(payload)
}

// Receive takes a frame of an engine of this eon, holds a frame of a later one, and handles the
// frames between a joining server and its sponsor.
func (s *eonServer) Receive(from order.ServerID, frame []byte) error {
	switch {
	case len(frame) == 1 && frame[0] == frameAsk:
		s.asked = append(s.asked, from)
		return nil
	case len(frame) > welcomeHeader && frame[0] == frameWelcome:
		return s.welcomed(frame)
	}
	run, err := allconcur.FrameGeneration(frame)
	switch {
	case err != nil:
		return err
	case s.engine == nil || run > s.run:
		if len(s.held) == heldMax {
			return fmt.Errorf("figure: more than %d frames wait for the next eon", heldMax)
		}
		s.held = append(s.held, heldFrame{from: from, frame: frame})
		return nil
	case run < s.run:
		return nil
	}
	return s.engine.Receive(s.place(from), frame)
}

// welcomed starts the eon in which this server enters.
func (s *eonServer) welcomed(frame []byte) error {
	if s.engine != nil {
		return nil
	}
	s.members = nil
	for rest := frame[welcomeHeader:]; len(rest) >= 4; rest = rest[4:] {
		s.members = append(s.members, order.ServerID(binary.LittleEndian.Uint32(rest)))
	}
	return s.start(binary.LittleEndian.Uint64(frame[1:]),
		order.Round(binary.LittleEndian.Uint64(frame[9:])))
}

// Suspect passes on the suspicion of a member.
func (s *eonServer) Suspect(server order.ServerID) error {
	if s.engine == nil || !slices.Contains(s.members, server) {
		return nil
	}
	return s.engine.Suspect(s.place(server))
}

// Trust does nothing: the detector is perfect.
func (s *eonServer) Trust(order.ServerID) error { return nil }

// Ready returns the actions to take, and moves on to the next eon when this one has ended.
func (s *eonServer) Ready() order.Ready {
	s.sends, s.deliveries, s.messages = append(s.sends[:0], s.welcomes...), s.deliveries[:0],
		s.messages[:0]
	s.welcomes = s.welcomes[:0]
	if s.engine == nil {
		return order.Ready{Sends: s.sends}
	}
	ready := s.engine.Ready()
	for _, send := range ready.Sends {
		s.sends = append(s.sends, order.Send{To: s.outside(send.To), Frame: send.Frame})
	}
	for _, d := range ready.Deliveries {
		from := len(s.messages)
		for _, m := range d.Messages {
			s.messages = append(s.messages, order.Message{Origin: s.members[m.Origin],
				Payload: m.Payload})
		}
		d.Messages, d.Removed = s.messages[from:], s.outside(d.Removed)
		s.removed = append(s.removed, d.Removed...)
		s.deliveries, s.delivered = append(s.deliveries, d), d.Round
	}
	if len(s.entering) > 0 && s.engine.Status().Ended {
		s.next()
	}
	return order.Ready{Sends: s.sends, Deliveries: s.deliveries}
}

// next starts the next eon.
func (s *eonServer) next() {
	members := slices.DeleteFunc(slices.Clone(s.members), func(p order.ServerID) bool {
		return slices.Contains(s.removed, p)
	})
	entering := s.entering
	members = append(members, entering...)
	slices.Sort(members)
	s.members = slices.Compact(members)
	run, first := s.run+1, s.delivered+1
	if s.self == sponsor {
		welcome := make([]byte, welcomeHeader, welcomeHeader+4*len(s.members))
		welcome[0] = frameWelcome
		binary.LittleEndian.PutUint64(welcome[1:], run)
		binary.LittleEndian.PutUint64(welcome[9:], uint64(first))
		for _, p := range s.members {
			welcome = binary.LittleEndian.AppendUint32(welcome, uint32(p))
		}
		s.welcomes = append(s.welcomes, order.Send{To: entering, Frame: welcome})
	}
	if err := s.start(run, first); err != nil {
		// the configuration was valid for the previous eon
		panic("figure: the engine of the next eon: " + err.Error())
	}
}

// Status returns the engine's status, by places.
func (s *eonServer) Status() order.Status {
	if s.engine == nil {
		return order.Status{}
	}
	return s.engine.Status()
}
