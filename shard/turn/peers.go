package turn

import (
	"errors"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// peer is what the machine knows of one member. In a run, lost and silenced are for good.
type peer struct {
	// lost tells that frames of ours never get there; silenced that nothing is taken from it.
	lost, silenced bool
	// suspected tells that the engine was told so.
	suspected bool
	// crowded tells that too much waits for it.
	crowded bool
}

// weigh takes opinions in their order.
func (m *Machine) weigh(opinions []Opinion) {
	for _, o := range opinions {
		switch o.Kind {
		case Suspect:
			m.suspect(o.Server, o.Cause)
		case Trust:
			m.trust(o.Server)
		case Gone:
			m.silence(o.Server, o.Cause)
		}
	}
}

// suspect tells the engine, for which only a predecessor's suspicion counts.
func (m *Machine) suspect(server order.ServerID, cause error) {
	p := &m.peers[server]
	if p.suspected || m.ended {
		return
	}
	p.suspected, m.moved = true, true
	refused := m.engine.Suspect(server)
	m.noteOpinion(Action{Kind: Suspected, Server: server, Cause: cause, Refused: refused})
}

// trust takes the suspicion of a member back, unless frames are missing between it and this server.
func (m *Machine) trust(server order.ServerID) {
	p := &m.peers[server]
	if !p.suspected || (p.lost || p.silenced) && m.config.Fault != FaultSilencedTrusted {
		return
	}
	p.suspected, m.moved = false, true
	m.noteOpinion(Action{Kind: Trusted, Server: server, Refused: m.engine.Trust(server)})
}

// noteOpinion notes that the engine was told an opinion. An engine that halted refuses it.
func (m *Machine) noteOpinion(news Action) {
	m.news = append(m.news, news)
	if errors.Is(news.Refused, order.ErrHalted) {
		m.Look()
	}
}

// silence gives a member up in both directions.
func (m *Machine) silence(server order.ServerID, cause error) {
	p := &m.peers[server]
	if !p.silenced {
		p.silenced = true
		m.news = append(m.news, Action{Kind: Silenced, Server: server, Cause: cause})
	}
	m.Break(server, cause)
}

// Break says that the way to a member is broken, with frames that it never got. It is suspected for
// the rest of the run. What comes from it is still of use. Break reports whether it is news.
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

// remove ends all exchange with members that a round removes. What is on their lanes stays there:
// one that lives after all may learn from it that it was removed.
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

// Crowded says whether too much waits for a member.
func (m *Machine) Crowded(server order.ServerID, crowded bool) {
	p := &m.peers[server]
	p.crowded = crowded && !p.lost
}

// WaitsFor names a member for which this server holds its batches back: too much waits for it, and
// nobody suspects it. A member that is suspected does not count: the agreement on its failure may
// need our message.
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
