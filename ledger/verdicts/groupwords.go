package verdicts

import (
	"container/list"
	"slices"
)

// groupCost is what a word on a group costs beside the group's verdicts, of a member's share.
const groupCost = 16

// groupWord is the word of one member on a group. place is where it is in groupTeller.groups.
type groupWord struct {
	member Member
	place  *list.Element
}

// groupTeller is a member of another shard with the groups that it told and that are not believed,
// in the order of their arrival.
type groupTeller struct {
	groups list.List
	cost   int
}

// groupWords holds the words on groups that are not believed yet. Each member has an equal share of
// the room, so that one that invents groups pushes out its own words only.
type groupWords struct {
	tellers map[Member]*groupTeller
	share   int
	count   int // of the verdicts
}

func newGroupWords() groupWords { return groupWords{tellers: map[Member]*groupTeller{}} }

// add adds a member's word on a group, if there is none.
func (w *groupWords) add(member Member, g *group) {
	if slices.ContainsFunc(g.words, func(word groupWord) bool { return word.member == member }) {
		return
	}
	teller := w.tellers[member]
	if teller == nil {
		teller = new(groupTeller)
		w.tellers[member] = teller
	}
	g.words = append(g.words, groupWord{member, teller.groups.PushBack(g)})
	teller.cost += len(g.IDs) + groupCost
	w.count += len(g.IDs)
}

// remove removes word i on a group.
func (w *groupWords) remove(g *group, i int) {
	teller := w.tellers[g.words[i].member]
	teller.groups.Remove(g.words[i].place)
	teller.cost -= len(g.IDs) + groupCost
	w.count -= len(g.IDs)
	g.words = slices.Delete(g.words, i, i+1)
}

// drop removes all words on a group.
func (w *groupWords) drop(g *group) {
	for len(g.words) > 0 {
		w.remove(g, len(g.words)-1)
	}
}

// trim drops a member's oldest words until they cost at most this much, and the groups without
// words. It returns how many verdicts the words were about.
func (s *groupSet) trim(member Member, most int) (dropped int) {
	teller := s.words.tellers[member]
	for teller != nil && teller.cost > most {
		g := teller.groups.Front().Value.(*group)
		s.words.remove(g, slices.IndexFunc(g.words, func(word groupWord) bool {
			return word.member == member
		}))
		if dropped += len(g.IDs); len(g.words) == 0 {
			s.remove(g)
		}
	}
	return dropped
}

// followGroups adapts the words on groups to the present members, as wordSet.follow does, and
// believes the groups for which fewer words are enough now.
func (x *Exchange) followGroups() {
	s := &x.groups
	s.words.share = max(1, x.config.Bounds.Grouped/max(1, x.config.tellers()))
	for member, teller := range s.words.tellers {
		most := s.words.share
		if !contains(x.config.Members(member.Shard), member.Index) &&
			x.config.Fault != FaultCountDeparted {
			most = 0
		}
		x.dropped += uint64(s.trim(member, most))
		if teller.groups.Len() == 0 {
			delete(s.words.tellers, member)
		}
	}
	for _, g := range s.sorted() {
		if g.place == heard && x.enough(g, x.config.Members(g.Shard)) {
			x.believeGroup(g)
		}
	}
}
