package generation

import (
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// Waiting explains why no generation can be formed now. The lists are ascending, and name members
// of the memberships that each need a majority. A server may be in several lists.
type Waiting struct {
	// Missing is the least number of further members, with disks that count, that have to promise.
	Missing int
	// Unreachable have not promised and cannot be reached.
	Unreachable []order.ServerID
	// Silent have not promised, although they can be reached.
	Silent []order.ServerID
	// Forgot promised from disks that do not count: they lost what they stored, or may have.
	Forgot []order.ServerID
	// Restarted promised, but have forgotten their votes in the newest run.
	Restarted []order.ServerID
	// Memory says that enough promised, but too many of them restarted. The proposer waits for the
	// Silent ones.
	Memory bool
	// Perhaps lists the members whose disks perhaps had more than any disk holds whole. It is set
	// only if that keeps a generation from being formed: too few disks are known not to have had
	// it.
	Perhaps []order.ServerID
	// Durable is a height that some member knows to be durable, and that is beyond the point from
	// which the promises would go on; 0 for none. More disks forgot than the shard tolerates.
	Durable uint64
	// Changes is the number of the newest membership in any promise, of its chain or of the run
	// that its disk counted in. A server that is not in the own chain may have promised.
	Changes uint64
}

// Waiting returns what this node's latest attempt to form a generation lacked. If there was none
// since the last decision, it returns the members that cannot be reached.
func (s *Synod) Waiting() Waiting {
	w := s.lacks()
	// This disk, too, may remember more changes of the membership than its chain shows.
	w.Changes = max(w.Changes, s.state.Shard.Number)
	return w
}

func (s *Synod) lacks() Waiting {
	if s.phase == phasePreparing {
		return s.missing()
	}
	w := s.relinked(s.waitsFor)
	if w.Missing > 0 || w.Memory || len(w.Perhaps) > 0 || w.Durable > 0 || s.working != 0 {
		return w
	}
	m := s.report.Membership
	w.Unreachable = nil
	for _, server := range m.Members {
		if server != s.config.Self && !s.linked[server] {
			w.Unreachable = append(w.Unreachable, server)
		}
	}
	w.Missing = max(0, m.Quorum()-len(m.Members)+len(w.Unreachable))
	return w
}

// relinked returns what an attempt lacked, with the links as they are now.
func (s *Synod) relinked(w Waiting) Waiting {
	without := slices.Concat(w.Unreachable, w.Silent)
	slices.Sort(without)
	w.Unreachable, w.Silent = nil, nil
	for _, server := range without {
		if s.linked[server] {
			w.Silent = append(w.Silent, server)
		} else {
			w.Unreachable = append(w.Unreachable, server)
		}
	}
	return w
}

// Restarted says that another node began a new process. What its last promise said about its disk
// and its memory may no longer be true: Waiting does not repeat it until the node promises again.
func (s *Synod) Restarted(server order.ServerID) {
	for i := range s.promises {
		p := &s.promises[i]
		p.over = p.over || p.from == server
	}
	w := &s.waitsFor
	told := false
	for _, list := range []*[]order.ServerID{&w.Forgot, &w.Restarted, &w.Perhaps} {
		if at := slices.Index(*list, server); at >= 0 {
			*list = slices.Delete(slices.Clone(*list), at, at+1)
			told = true
		}
	}
	if told && !slices.Contains(w.Silent, server) {
		w.Silent = append(slices.Clone(w.Silent), server)
		slices.Sort(w.Silent)
	}
}

// missing returns what keeps the own attempt from a proposal. It returns the zero value if only the
// grace for others does. A promise counts although its node restarted since, but Waiting does not
// repeat what it said.
func (s *Synod) missing() Waiting {
	v := s.survey()
	w := Waiting{Missing: max(0, v.missing(false))}
	if s.bound(&v) == nil && w.Missing == 0 {
		w.Memory = !v.enough(true)
		if s.endsBelowDurable(v) {
			w.Durable = v.durable
		}
	}
	for _, p := range s.promises {
		// A disk that lost blocks may remember that it counted with a later membership.
		r := &p.message.Report
		w.Changes = max(w.Changes, r.Membership.Number, r.Shard.Number)
	}
	perhaps := v.perhaps()
	for _, server := range s.asked {
		at := slices.IndexFunc(v.promises, func(p Promised) bool { return p.Server == server })
		over := slices.ContainsFunc(s.promises, func(p pending) bool {
			return p.from == server && p.over
		})
		forgot := at >= 0 && v.learner(v.promises[at]) || at < 0 && s.promised(server)
		restarted := at >= 0 && !forgot && !v.remembers(v.promises[at])
		had := at >= 0 && !forgot && perhaps && v.promises[at].Report.hadPerhaps(v.head)
		switch {
		case over && (forgot || restarted || had) && s.linked[server]:
			w.Silent = append(w.Silent, server) // until it promises again: see Restarted
		case over && (forgot || restarted || had):
			w.Unreachable = append(w.Unreachable, server)
		case forgot:
			w.Forgot = append(w.Forgot, server)
		case at >= 0:
			if restarted {
				w.Restarted = append(w.Restarted, server)
			}
			if had {
				w.Perhaps = append(w.Perhaps, server)
			}
		case s.linked[server]:
			w.Silent = append(w.Silent, server)
		default:
			w.Unreachable = append(w.Unreachable, server)
		}
	}
	return w
}
