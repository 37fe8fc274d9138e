package generation

import (
	"cmp"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// Promised is one server's report, as a proposer received it.
type Promised struct {
	Server order.ServerID
	Report Report
}

// survey is what promises show together: how far the chain got, and which majorities are needed to
// go on from there.
//
// # Which majorities
//
// Let H be the furthest head. These majorities are needed: of the membership at H, of each
// membership before a change in H's chain that no promise knows to be durable, and of the
// membership that counted in the newest run. Only disks that count under a membership count towards
// its majority. A promise that knows a durable height knows it of its own chain, which may be
// another branch than H's. So the promise counts only if its chain has the change.
//
// If a generation was decided and no head belongs to it, H is that generation's base, provided that
// a promise is at the base. All proposers of the next generation know that decision (a Prepare
// carries it) and go on from its base. Blocks of earlier generations that are not in the base's
// chain are given up: they are not durable and never will be. A change of the membership in such a
// block therefore counts for nothing, and asking for its majority might mean waiting for a server
// whose join never took place. Without a promise at the base, or if the decision has a tail, H is
// the furthest head even so: a change in the tail takes effect.
//
// One majority may be left out: that of the newest run's membership, if it is the one right before
// the membership at H. What was durable in that run is in H's chain all the same, and two proposers
// meet (see the package comment). Two majorities before and after a member joined or left share a
// disk. If another disk was named for a member, they share one once the old disk does not count. It
// does not count for blocks after the change, and only those are in question (package shard ensures
// it). Only votes are missed. They are treated like those of a server that restarted: the proposer
// waits for members that it can reach.
//
// # Learners
//
// A learner's disk counts under none of these memberships. Its head is as good as any other, since
// the learner holds that much of the chain. But its head may require majorities that are absent and
// that would not be required without the learner's promise. So furthestSurvey leaves such a promise
// out.
type survey struct {
	promises []Promised
	// decided is the newest known decision.
	decided *Decision
	// durable is the highest height that any promise knows to be durable.
	durable uint64
	fault   Fault

	// head is the furthest head.
	head Head
	// top is the index of the promise whose chain determines which memberships count: the one with
	// the furthest head, or one at the decided base.
	top int
	// run is the newest run in which a disk that counted took part, and shard the membership that
	// the run counted with.
	run   Run
	shard Membership
	// memberships are those of which a majority is needed.
	memberships []Membership
	// remembering are the memberships of which a majority is needed that remembers its votes:
	// memberships and shard.
	remembering []Membership
}

// furthestSurvey surveys all promises, except those of learners whose heads are further than all
// others and keep the promises from being enough.
func furthestSurvey(promises []Promised, decided *Decision, fault Fault) survey {
	all := newSurvey(promises, promises, decided, fault)
	for v := all; len(v.promises) > 0; {
		if v.enough(false) && !v.perhaps() {
			return v
		}
		if !v.learner(v.promises[v.top]) {
			return v // the survey does not fail because of learners' heads
		}
		rest := slices.Delete(slices.Clone(v.promises), v.top, v.top+1)
		v = newSurvey(rest, promises, decided, fault)
	}
	return all
}

func durableHeight(promises []Promised) (height uint64) {
	for i := range promises {
		height = max(height, promises[i].Report.Durable)
	}
	return height
}

// newSurvey surveys some of the promises. Durable heights are taken from all of them.
func newSurvey(promises, all []Promised, decided *Decision, fault Fault) survey {
	v := survey{promises: promises, decided: decided, durable: durableHeight(all), fault: fault}
	for i := range promises {
		r := &promises[i].Report
		if i == 0 || v.head.Before(r.Head) {
			v.head, v.top = r.Head, i
		}
		newer := v.run < r.Run || v.run == r.Run && v.shard.Number < r.Shard.Number
		if (newer || v.shard.Members == nil) && v.counts(r.Shard, promises[i]) {
			v.run, v.shard = r.Run, r.Shard
		}
	}
	if len(promises) == 0 {
		return v
	}
	if decided != nil && len(decided.Tail) == 0 && v.head.Generation < decided.Generation {
		// choose goes on from the decided base. Any other branch is given up, however far it got.
		// With a tail, a head above the base may be that of a server that executed the tail.
		based := slices.IndexFunc(promises, func(p Promised) bool {
			return p.Report.Head.Height == decided.Base.Height &&
				p.Report.Head.Hash == decided.Base.Hash
		})
		if based >= 0 {
			v.top = based
		}
	}
	top := &promises[v.top].Report
	v.require(top.Membership)
	for i, former := range top.Former {
		effective := slices.ContainsFunc(all, func(p Promised) bool {
			return p.Report.knowsEffective(top, i)
		})
		if fault == FaultDurableElsewhere {
			effective = former.Until <= v.durable
		}
		if !effective && fault != FaultFormerIgnored {
			v.require(former.Membership)
		}
	}
	met := v.shard.neighbour(top.Membership)
	if v.run != 0 {
		if fault == FaultNewMembershipDropped {
			v.memberships, met = nil, false
		}
		if !met {
			v.require(v.shard)
		}
	}
	slices.SortStableFunc(v.memberships, func(a, b Membership) int {
		return cmp.Compare(a.Number, b.Number)
	})
	v.remembering = v.memberships
	if v.run != 0 && met && !slices.ContainsFunc(v.memberships, v.shard.Equal) {
		v.remembering = append([]Membership{v.shard}, v.memberships...)
	}
	return v
}

// knowsEffective reports whether a node knows that the change after the i-th former membership of a
// chain is durable. Some height from the change on is durable, and the node's own chain has the
// change at or below the height that it knows to be durable.
func (r *Report) knowsEffective(of *Report, i int) bool {
	// later reports whether m is a later membership of that chain than its i-th former one.
	later := func(m Membership) bool {
		return m.Equal(of.Membership) || slices.ContainsFunc(of.Former[i+1:], func(f Former) bool {
			return m.Equal(f.Membership)
		})
	}
	// effective is the membership at the height that the node knows to be durable.
	effective := r.Membership
	at := slices.IndexFunc(r.Former, func(f Former) bool { return f.Until > r.Durable })
	if at >= 0 {
		effective = r.Former[at].Membership
	}
	return r.Durable >= of.Former[i].Until && later(effective)
}

func (v *survey) require(m Membership) {
	if len(m.Members) > 0 && !slices.ContainsFunc(v.memberships, m.Equal) {
		v.memberships = append(v.memberships, m)
	}
}

// membership returns the membership of the top promise, which is the one at the furthest head or
// the decided base.
func (v *survey) membership() Membership {
	if len(v.promises) == 0 {
		return Membership{}
	}
	return v.promises[v.top].Report.Membership
}

// counts reports whether a promise counts towards the majority of a membership.
func (v *survey) counts(m Membership, p Promised) bool {
	if v.fault == FaultLostDiskIgnored {
		return m.Includes(p.Server)
	}
	return countsUnder(m, p.Server, p.Report.Disk, p.Report.Original, v.decided)
}

// countsUnder reports whether a disk counts under a membership, as Membership.Counts does. If the
// chain names no disk for a member but the newest decision does, a different disk does not count:
// the member has lost what it stored.
func countsUnder(m Membership, server order.ServerID, disk DiskID, original bool,
	d *Decision) bool {
	if !m.Counts(server, disk, original) {
		return false
	}
	return m.Disk(server) != DiskID{} || d == nil || !d.lost(server, disk)
}

// learner reports whether a promise counts towards no majority.
func (v *survey) learner(p Promised) bool {
	return !slices.ContainsFunc(v.memberships, func(m Membership) bool { return v.counts(m, p) })
}

// remembers reports whether the server knows all its votes in the newest run.
func (v *survey) remembers(p Promised) bool {
	return !p.Report.Restarted || p.Report.Run != v.run
}

// enough reports whether a majority of each membership promised. With remembering, servers that
// restarted since the newest run do not count.
func (v *survey) enough(remembering bool) bool {
	return len(v.memberships) > 0 && v.missing(remembering) == 0
}

// missing returns the least number of further promises that are needed.
func (v *survey) missing(remembering bool) (most int) {
	memberships := v.memberships
	if remembering {
		memberships = v.remembering
	}
	for _, m := range memberships {
		most = max(most, quorum(m, v.fault)-v.count(m, remembering))
	}
	return most
}

func (v *survey) count(m Membership, remembering bool) (count int) {
	for _, p := range v.promises {
		if v.counts(m, p) && (!remembering || v.remembers(p)) {
			count++
		}
	}
	return count
}

// perhaps reports whether a durable block may lie beyond the furthest head, on a disk that no
// longer holds it whole.
//
// Let block b be durable and beyond the furthest head H. Take a membership of n members that is
// asked, with majorities of c, and let A be the set of its disks that make b durable. A meets each
// majority, so it has at least n - c + 1 disks. A is a majority if b became durable under this
// membership. A may be smaller if b became durable under the membership before or after: a run
// counts with one membership to its end, and a change is effective once its block is on that many
// old disks (shard.Durability).
//
// No promise comes from a disk of A that holds b whole. Syncing b implies holding the chain up to
// b, so the head of that disk would be further than H. (Heads are compared by generation, and no
// generation was decided that goes on from less than b.) So each promise from a disk of A reports
// Perhaps: the disk perhaps had more than its head, and more than H if it knows how much that was
// at most. All other disks that promised are outside of A.
//
// Hence there is no such b if fewer than n - c + 1 disks are left for A. Those left are the disks
// that did not promise, and at most n - c of the disks that perhaps had more. At most n - c disks
// may have damaged blocks that they had announced, or the shard has lost more disks than it
// tolerates. The other disks that perhaps had more were only torn by the crash. So a shard of one
// or two, and a shard whose members all promise, never waits.
//
// A disk that reports no Perhaps had nothing beyond its own head, so nothing beyond H. If H is at
// least as far as everything that a disk perhaps had, that disk proves nothing about blocks beyond
// H either, unless H is of a generation before the one in which that disk last worked.
func (v *survey) perhaps() bool {
	if v.fault == FaultPerhapsIgnored {
		return false
	}
	for _, m := range v.remembering {
		had, hadNot := 0, 0
		for _, p := range v.promises {
			switch {
			case !v.counts(m, p):
			case p.Report.hadPerhaps(v.head):
				had++
			default:
				hadNot++
			}
		}
		tolerated := len(m.Members) - m.Quorum()
		absent := len(m.Members) - had - hadNot
		if had > 0 && min(had, tolerated)+absent > tolerated {
			return true
		}
	}
	return false
}

// quorum returns how many members of a membership have to promise, or accept.
func quorum(m Membership, fault Fault) int {
	if fault == FaultMinorityQuorum {
		return max(1, m.Quorum()-1)
	}
	return m.Quorum()
}
