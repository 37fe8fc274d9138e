package turn

import (
	"errors"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// peer is what the machine knows of one member. Within a run, lost and silenced are final.
type peer struct {
	// lost says that the member gets no more of our frames, silenced that nothing is taken from it.
	lost, silenced bool
	// suspected says that the engine was told to suspect it.
	suspected bool
	// crowded says that too many frames wait for it.
	crowded bool
}

// weigh handles opinions in their order.
func (m *Machine) weigh(opinions []Opinion) {
	for _, o := range opinions {
		switch o.Kind {
		case Suspect:
			m.suspect(o.Server, o.Cause)
		case Trust:
			m.trust(o.Server)
		case Gone:
			m.silence(o.Server, o.Cause)
		case Probe:
			m.probe()
		}
	}
}

// suspect tells the engine to suspect a server. The engine counts only suspicions of its
// predecessors.
func (m *Machine) suspect(server order.ServerID, cause error) {
	p := &m.peers[server]
	if p.suspected || m.ended {
		return
	}
	p.suspected, m.moved = true, true
	refused := m.engine.Suspect(server)
	m.noteOpinion(Action{Kind: Suspected, Server: server, Cause: cause, Refused: refused})
}

// probe has the engine show whether the run still goes on.
func (m *Machine) probe() {
	if prober, probes := m.engine.(order.Prober); probes && !m.ended {
		m.moved = true
		prober.Probe()
	}
}

// trust withdraws the suspicion of a member, unless frames are missing between it and this server.
func (m *Machine) trust(server order.ServerID) {
	p := &m.peers[server]
	if !p.suspected || (p.lost || p.silenced) && m.config.Fault != FaultSilencedTrusted {
		return
	}
	p.suspected, m.moved = false, true
	m.noteOpinion(Action{Kind: Trusted, Server: server, Refused: m.engine.Trust(server)})
}

// noteOpinion records that the engine was told an opinion. A halted engine refuses it.
func (m *Machine) noteOpinion(news Action) {
	m.news = append(m.news, news)
	if errors.Is(news.Refused, order.ErrHalted) {
		m.Look()
	}
}

// silence gives up a member in both directions.
func (m *Machine) silence(server order.ServerID, cause error) {
	p := &m.peers[server]
	if !p.silenced {
		p.silenced = true
		m.news = append(m.news, Action{Kind: Silenced, Server: server, Cause: cause})
	}
	m.Break(server, cause)
}

// Break says that the lane to a member is broken, with frames that the member never got. The member
// is suspected for the rest of the run. Frames from it are still of use. Break reports whether this
// is new.
func (m *Machine) Break(server order.ServerID, cause error) bool {
	p := &m.peers[server]
	if p.lost {
		return false
	}
	p.lost, m.moved, m.again = true, true, true
	m.Crowded(server, false)
	m.suspect(server, cause)
	m.news = append(m.news, Action{Kind: Lost, Server: server, Cause: cause})
	return true
}

// remove ends all exchange with members that a round removes. Frames already on their lanes stay
// there: a removed member that is still alive may learn from them that it was removed.
func (m *Machine) remove(servers []order.ServerID) {
	for _, server := range servers {
		if server == m.config.Self {
			m.Look()
			continue
		}
		p := &m.peers[server]
		p.lost, p.silenced = true, true
		m.Crowded(server, false)
	}
}

// Lost reports whether nothing more is sent to a member in this run.
func (m *Machine) Lost(server order.ServerID) bool { return m.peers[server].lost }

// Crowded sets whether too many frames wait for a member.
func (m *Machine) Crowded(server order.ServerID, crowded bool) {
	p := &m.peers[server]
	p.crowded = crowded && !p.lost
}

// WaitsFor returns a member for which this server holds its batches back: too many frames wait for
// it, and no server suspects it. A suspected member does not count: the agreement on its failure
// may need our message.
func (m *Machine) WaitsFor() (order.ServerID, bool) {
	var suspected []order.ServerID
	for i := range m.peers {
		if p := &m.peers[i]; !p.crowded || p.suspected {
			continue
		}
		if suspected == nil {
			suspected = m.engine.Status().Suspected
		}
		if !slices.Contains(suspected, order.ServerID(i)) {
			return order.ServerID(i), true
		}
	}
	return 0, false
}
