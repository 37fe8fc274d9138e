package ledger

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

// changePlace is where a change of the membership was made. The zero value is nowhere: before the first block, or never.
type changePlace struct {
	number uint64
	height Height
	round  Round
}

// member is one that is or was a member. Members of the genesis that are still there are no entries of the state, so that a chain whose
// membership never changed has the state that it had before there were such changes.
type member struct {
	Member
	index        MemberIndex
	joined, left changePlace
	mark         mark
}

// stays reports whether the block at height has it as a member.
func (m *member) stays(height Height) bool {
	return m.joined.height <= height && (m.left.number == 0 || m.left.height > height)
}

func (m *member) group() GroupMember {
	return GroupMember{Index: m.index, Member: m.Member.copy(), Joined: m.joined.height}
}

// group is the part of the state that knows the members: all that ever were, by index.
type group struct {
	members []*member
	last    changePlace
}

func newGroup(genesis *Genesis) group {
	var g group
	for i := range genesis.Members {
		g.members = append(g.members, &member{Member: genesis.Members[i].copy(), index: MemberIndex(i)})
	}
	return g
}

// at returns the membership as of a height.
func (g *group) at(height Height) Membership {
	membership := Membership{Members: make([]GroupMember, 0, len(g.members))}
	var last changePlace
	for _, each := range g.members {
		for _, place := range [...]changePlace{each.joined, each.left} {
			if place.number > last.number && place.height <= height {
				last = place
			}
		}
		if each.stays(height) {
			membership.Members = append(membership.Members, each.group())
		}
	}
	membership.Number, membership.Height, membership.Round = last.number, last.height, last.round
	return membership
}

// Membership returns the present membership; the copy is the caller's.
func (s *State) Membership() Membership { return s.group.at(1<<64 - 1) }

// MembershipAt returns the membership after the block at a height; the copy is the caller's.
func (s *State) MembershipAt(height Height) Membership { return s.group.at(height) }

// FormerMembers returns those that left, by index; the copy is the caller's.
func (s *State) FormerMembers() []FormerMember {
	var former []FormerMember
	for _, each := range s.group.members {
		if each.left.number != 0 {
			former = append(former, FormerMember{GroupMember: each.group(), Left: each.left.height})
		}
	}
	return former
}

// attemptChange executes an administrative transaction as far as it can fail. It has no part that would have to be taken back.
func (s *State) attemptChange(t *Transaction, root Hash, signatures []Signature) Result {
	fails := func(code Code) Result { return Result{code, NoItem} }
	switch {
	case !signedByOperator(s.genesis, root, signatures):
		return fails(Unauthorised)
	case !s.Fresh(Operator, t.Nonce):
		return fails(StaleNonce)
	case s.group.says(t.Change):
		return applied
	case s.group.last.number > 0 && s.round < s.group.last.round+ChangeRounds:
		return fails(MembershipChanging)
	}
	if t.Change.Kind == ChangeJoin {
		return fails(s.group.mayJoin(&t.Change.Member))
	}
	return fails(s.group.mayLeave(t.Change.Index))
}

// says reports whether a join is of a member that is there with the same name, key and address.
func (g *group) says(change *MembershipChange) bool {
	return change.Kind == ChangeJoin && slices.ContainsFunc(g.members, func(each *member) bool {
		return each.left.number == 0 && each.Name == change.Member.Name && bytes.Equal(each.Key, change.Member.Key) && each.Address == change.Member.Address
	})
}

func (g *group) mayJoin(joining *Member) Code {
	present := 0
	for _, each := range g.members {
		if bytes.Equal(each.Key, joining.Key) {
			return MemberKeyTaken
		}
		if each.left.number != 0 {
			continue
		}
		present++
		switch {
		case each.Name == joining.Name:
			return MemberNameTaken
		case each.Address == joining.Address:
			return MemberAddressTaken
		}
	}
	if present >= MaxMembers || len(g.members) >= MaxMemberIndexes {
		return TooManyMembers
	}
	return Applied
}

func (g *group) mayLeave(index MemberIndex) Code {
	if int(index) >= len(g.members) || g.members[index].left.number != 0 {
		return UnknownMember
	}
	if !slices.ContainsFunc(g.members, func(each *member) bool { return each.left.number == 0 && each.index != index }) {
		return LastMember
	}
	return Applied
}

// changeMembership does what attemptChange allowed.
func (s *State) changeMembership(change *MembershipChange) {
	if s.group.says(change) {
		return
	}
	s.group.last = changePlace{number: s.group.last.number + 1, height: s.height, round: s.round}
	if change.Kind == ChangeJoin {
		joined := &member{Member: change.Member.copy(), index: MemberIndex(len(s.group.members)), joined: s.group.last}
		joined.mark = mark{touched: true, before: -1}
		s.group.members = append(s.group.members, joined)
		s.touchedMembers = append(s.touchedMembers, joined)
		return
	}
	leaving := s.group.members[change.Index]
	if leaving.joined.number == 0 {
		leaving.mark = mark{touched: true, before: -1}
	} else {
		s.arena, leaving.mark = keep(s.arena, leaving.appendEntry)
	}
	leaving.left = s.group.last
	s.touchedMembers = append(s.touchedMembers, leaving)
}

func (m *member) appendEntry(to []byte) (entry []byte, keyLength int) {
	start := len(to)
	to = append(binary.BigEndian.AppendUint32(append(to, kindMember), uint32(m.index)), 0)
	keyLength = len(to) - start
	to = m.Member.append(to)
	return m.left.append(m.joined.append(to)), keyLength
}

func (p *changePlace) append(to []byte) []byte {
	to = binary.AppendUvarint(to, p.number)
	to = binary.AppendUvarint(to, uint64(p.height))
	return binary.AppendUvarint(to, uint64(p.round))
}

func (r *reader) changePlace() changePlace {
	return changePlace{number: r.uvarint(), height: Height(r.uvarint()), round: Round(r.uvarint())}
}

// restore puts the entry of a member into the group. It returns whether there was one already.
func (g *group) restore(key []byte, r *reader) (again bool, err error) {
	if len(key) != 1+4+1 {
		return false, fmt.Errorf("%w: key %x", ErrEntry, key)
	}
	restored := &member{index: MemberIndex(binary.BigEndian.Uint32(key[1:])), Member: r.member(), joined: r.changePlace(), left: r.changePlace()}
	g.last = slices.MaxFunc([]changePlace{g.last, restored.joined, restored.left}, func(a, b changePlace) int { return cmp.Compare(a.number, b.number) })
	place, found := slices.BinarySearchFunc(g.members, restored.index, func(each *member, index MemberIndex) int { return cmp.Compare(each.index, index) })
	if !found {
		g.members = slices.Insert(g.members, place, restored)
		return false, nil
	}
	before := g.members[place]
	g.members[place] = restored
	return before.joined.number != 0 || before.left.number != 0, nil
}
