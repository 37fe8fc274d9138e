package node

import (
	"errors"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/control"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// errLeft is why a member is suspected that said itself that it does not take part any more.
var errLeft = errors.New("it says that it left the group")

// heard is what a member said last of itself.
type heard struct {
	announcement
	at time.Time
}

// recent tells whether what a member said counts still. The lock is held.
func (s *supervisor) recent(server order.ServerID, h heard) bool {
	return s.linked[server] && time.Since(h.at) < hearsayLasts
}

// event hears of the fabric's links.
func (s *supervisor) event(event rdmanet.PeerEvent) {
	server, known := s.node.peers.server(event.Peer.ID)
	if !known {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch event.Kind {
	case rdmanet.PeerConnected:
		s.linked[server] = true
		s.announceSoon()
	case rdmanet.PeerRestarted:
		s.linked[server] = true
		delete(s.heard, server)
		s.announceSoon()
	case rdmanet.PeerDisconnected, rdmanet.PeerUnreachable:
		s.linked[server] = false
		if h, ok := s.heard[server]; ok {
			h.run = 0 // whatever it does now, it does not help us
			s.heard[server] = h
		}
	}
}

// onAnnouncement hears what a member does.
func (s *supervisor) onAnnouncement(from rdmanet.Peer, payload []byte) {
	server, known := s.isPeer(from)
	if !known {
		return
	}
	a, err := decodeAnnouncement(payload)
	if err != nil {
		s.node.logger.Error("announcement dropped", "peer", from, "error", err)
		return
	}
	s.node.time.heard(ledger.MemberIndex(server), a.clock)
	s.mu.Lock()
	// A member that says that it left this node's run sends nothing more in it: there is no need to wait until its silence shows.
	left := generation.Run(0)
	if g := s.group; g != nil && a.run == 0 && a.mode != api.ModeStopping && s.heard[server].run == g.run {
		left = g.run
	}
	s.heard[server] = heard{a, time.Now()}
	s.linked[server] = true // it may have connected before this node watched
	calls := s.group == nil && len(a.entrants) > 0
	if settings := s.settings(); a.settings != settings && !s.warned[server] {
		s.warned[server] = true
		s.node.logger.Error("a member is set to another engine or detector: set [ordering] engine and detector to the same on all nodes and start them again", "member", server, "its", a.settings, "ours", settings)
	}
	s.mu.Unlock()
	if left != 0 {
		s.detector.Lost(uint64(left), server, errLeft)
	}
	if a.run != 0 {
		s.node.pipeline.PeerStored(uint64(a.run), server, a.heights.Stored)
	}
	s.believeDurable(a)
	s.node.between.heard(from.ID, &a)
	if calls {
		s.announceSoon() // the loop looks whether it is this node that is called
	}
}

// settings are what all members have to have set alike.
func (s *supervisor) settings() string {
	config := s.node.home.Config.Ordering
	return config.Engine + ", " + config.Detector
}

// believeDurable takes a peer's word for what is durable, as far as the peer's chain is ours.
func (s *supervisor) believeDurable(a announcement) {
	height := min(a.heights.Durable, s.node.pipeline.Tip().Height)
	heights, _ := s.node.pipeline.Heights()
	if height <= heights.Durable || height > a.heights.Ordered {
		return
	}
	if a.heights.Ordered <= heights.Ordered {
		if _, hash, err := s.node.Store().Header(a.heights.Ordered); err != nil || hash != a.tip {
			return
		}
	} else if g := s.at(); g == nil || a.run.Generation() != g.run.Generation() {
		return // it is ahead, in another group perhaps: what it says counts when we have got there
	}
	s.node.pipeline.PeerDurable(height)
}

// announce tells the others what this node does. To peers that are not there it is said less often: it makes the fabric look for them.
func (s *supervisor) announce() {
	periodic := time.Since(s.announced) >= announceEvery
	if periodic {
		s.announced = time.Now()
	}
	// The heights come first: blocks of a run are announced with that run, or a later one.
	heights, _ := s.node.pipeline.Heights()
	tip := s.node.pipeline.Tip()
	heights.Ordered = tip.Height
	changes := s.node.Store().Membership().Number
	status := s.driver.Status()
	s.mu.Lock()
	a := announcement{mode: s.current, stalled: s.stalled, decided: s.decided, changes: changes, heights: heights, tip: tip.Hash, apiAddress: s.node.URL(), settings: s.settings()}
	if g := s.group; g != nil {
		a.run, a.first, a.base, a.baseHash, a.members, a.entrants = g.run, g.first, g.base, g.baseHash, g.members, g.entrants
		if status.Group.Generation == uint64(g.run) {
			for _, member := range g.members {
				if !slices.Contains(status.Engine.Members, member) {
					a.removed = append(a.removed, member)
				}
			}
		}
	}
	if s.node.stopping.Load() {
		a.mode = api.ModeStopping
	}
	var to []rdmanet.PeerID
	for server, peer := range s.node.peers.table.Load().ids {
		if id := order.ServerID(server); peer != "" && id != s.node.home.Self && (periodic || s.linked[id]) {
			to = append(to, peer)
		}
	}
	s.mu.Unlock()
	a.clock = s.node.time.now()
	payload := a.encode()
	for _, peer := range to {
		if err := s.node.control.Send(peer, control.KindStatus, payload); err != nil {
			s.node.logger.Debug("not announced", "peer", peer, "error", err)
		}
	}
}
