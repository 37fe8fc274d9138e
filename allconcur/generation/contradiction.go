package generation

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// A message may contradict the latest decision that this node knows. Members that only crash never
// send one. A member that lies can, and it can do so first: then this node believes the false
// decision until it hears the true one. One member's word must neither end this node nor bind it
// for good, once a true decision of that generation exists. If there is none, nothing contradicts
// the false one: the nodes that believe it may wait for a disk that nobody has, until an operator
// recovers the shard.
//
//   - A member that contradicts is not listened to. Its statement is kept until it is taken back,
//     or the member is gone.
//   - A decision that this node only heard of, and that it has not worked in, yields to one that
//     more members state, once all that it can reach have said what they know. The word of a member
//     that changes it counts for neither.
//   - A node that worked in its decision, or counted the acceptances itself, stops once more
//     members contradict it than may fail: then its own disk is the wrong one.

// statement is what a member last said was decided in the generation of State.Decided.
type statement struct {
	server   order.ServerID
	decision Decision
	// turned says that it stated another one before. Such a word counts for neither.
	turned bool
}

// leap bounds how far a generation, or a ballot, may be above what this node knows. Both numbers
// have an end, and a member that lies must not get there in one message.
const leap = 1 << 20

// credible reports whether a decision may be believed: it could be one of a chain's, and its
// generation can have been reached.
func (s *Synod) credible(d *Decision) bool {
	return d != nil && d.sound() && d.Generation < s.Next()+leap
}

// outbids reports whether a ballot is further above all others than attempts can have brought it.
func (s *Synod) outbids(b Ballot) bool {
	return b.Number > max(s.highest.Number, s.state.Promised.Number)+leap
}

// hear takes a decision that another server states. It reports whether that agrees with what this
// node knows. If it does not, the message with it counts for nothing.
func (s *Synod) hear(from order.ServerID, d *Decision, holders []order.ServerID) bool {
	known := s.state.Decided
	if known == nil || known.Generation < d.Generation {
		s.learn(*d, holders)
		s.remember(from, d)
		return true
	}
	if known.Generation > d.Generation {
		return true
	}
	s.remember(from, d)
	if d.Equal(*known) {
		return true
	}
	s.weigh(d, holders)
	return s.broken == nil && d.Equal(*s.state.Decided)
}

// remember keeps what a server states now, ascending by server.
func (s *Synod) remember(server order.ServerID, d *Decision) {
	at, known := slices.BinarySearchFunc(s.stated, server,
		func(said statement, server order.ServerID) int { return cmp.Compare(said.server, server) })
	if !known {
		first := statement{server: server, decision: *d}
		s.stated = slices.Insert(slices.Clone(s.stated), at, first)
		return
	}
	if said := s.stated[at]; !said.decision.Equal(*d) {
		s.stated = slices.Clone(s.stated)
		s.stated[at] = statement{server: server, decision: *d,
			turned: said.turned || said.decision.Generation == d.Generation}
	}
}

// unsay forgets what a server stated.
func (s *Synod) unsay(server order.ServerID) {
	s.stated = slices.DeleteFunc(slices.Clone(s.stated), func(said statement) bool {
		return said.server == server
	})
}

// weigh acts on a decision that contradicts the known one.
func (s *Synod) weigh(d *Decision, holders []order.ServerID) {
	against, with := s.statedBy(d), s.statedBy(s.state.Decided)
	tooMany := len(against) > (len(s.report.Membership.Members)-1)/2
	if own := s.counted || s.state.Activated.Generation() >= d.Generation; !own {
		if len(against) > len(with) && (tooMany || s.allStated()) {
			s.state.Decided = nil
			s.learn(*d, holders)
		}
		return
	}
	if tooMany {
		s.broken = fmt.Errorf("%w: generation %d began from block %d according to this node, and "+
			"from block %d, or with other members or rounds, according to members %v: the disk of "+
			"this node is not one of this shard, or those members lie; compare `ledgerd evidence` "+
			"of all members, and replace this node's home if it is alone",
			ErrTwoDecisions, d.Generation, s.state.Decided.Base.Height, d.Base.Height, against)
	}
}

// allStated reports whether all members that this node can reach have stated a decision.
func (s *Synod) allStated() bool {
	return !slices.ContainsFunc(s.report.Membership.Members, func(server order.ServerID) bool {
		return server != s.config.Self && s.linked[server] &&
			!slices.ContainsFunc(s.stated, func(said statement) bool {
				return said.server == server
			})
	})
}

// statedBy returns the members that state a decision.
func (s *Synod) statedBy(d *Decision) (members []order.ServerID) {
	for i := range s.stated {
		said := &s.stated[i]
		if s.report.Membership.Includes(said.server) && !said.turned &&
			said.decision.Equal(*d) {
			members = append(members, said.server)
		}
	}
	return members
}

// Contradicting returns the servers that state another decision than this node knows, ascending.
// Their messages about it count for nothing.
func (s *Synod) Contradicting() (servers []order.ServerID) {
	for i := range s.stated {
		if said := &s.stated[i]; !said.decision.Equal(*s.state.Decided) {
			servers = append(servers, said.server)
		}
	}
	return servers
}
