package state

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// changePlace is the place of a change of the membership. The zero value means before the first
// block, or never.
type changePlace struct {
	number uint64
	height ledger.Height
	round  ledger.Round
}

// admission is the naming of a disk for a member, and the place of that change.
type admission struct {
	disk ledger.DiskID
	changePlace
}

// member is a present or former member. A present member of the genesis for which no disk was named
// is not an entry of the state. So the state of a chain whose membership never changed is the same
// as in versions without changes of the membership.
type member struct {
	ledger.Member
	index        ledger.MemberIndex
	joined, left changePlace
	// disks are in the order in which they were named. The last one counts.
	disks []admission
	mark  mark
}

// isEntry reports whether the member is an entry of the state.
func (m *member) isEntry() bool {
	return m.joined.number != 0 || m.left.number != 0 || len(m.disks) > 0
}

// stays reports whether the node is a member after the block at height.
func (m *member) stays(height ledger.Height) bool {
	return m.joined.height <= height && (m.left.number == 0 || m.left.height > height)
}

// admitted returns the last naming of a disk at or below a height, or the zero value if there is
// none.
func (m *member) admitted(height ledger.Height) admission {
	for _, each := range slices.Backward(m.disks) {
		if each.height <= height {
			return each
		}
	}
	return admission{}
}

func (m *member) group(height ledger.Height) ledger.GroupMember {
	return ledger.GroupMember{
		Index: m.index, Member: cloneMember(&m.Member), Joined: m.joined.height,
		Disk: m.admitted(height).disk,
	}
}

// newest is a height that no block exceeds.
const newest ledger.Height = 1<<64 - 1

// membershipState is the part of the state about the members: all present and former ones, by
// index, and the engines that the chain named for them, in their order.
type membershipState struct {
	members []*member
	engines []*engineChange
	last    changePlace
}

func newMembershipState(genesis *ledger.Genesis) membershipState {
	var g membershipState
	for i := range genesis.Members {
		g.members = append(g.members, &member{Member: cloneMember(&genesis.Members[i]),
			index: ledger.MemberIndex(i)})
	}
	return g
}

// at returns the membership after the block at a height.
func (g *membershipState) at(height ledger.Height) ledger.Membership {
	membership := ledger.Membership{Members: make([]ledger.GroupMember, 0, len(g.members))}
	engine, last := g.engineAt(height)
	for _, each := range g.members {
		admitted := each.admitted(height).changePlace
		for _, place := range [...]changePlace{each.joined, each.left, admitted} {
			if place.number > last.number && place.height <= height {
				last = place
			}
		}
		if each.stays(height) {
			membership.Members = append(membership.Members, each.group(height))
		}
	}
	membership.Number, membership.Height, membership.Round = last.number, last.height, last.round
	membership.Engine = engine
	return membership
}

// Membership returns the present membership. The caller owns the copy.
func (s *State) Membership() ledger.Membership { return s.group.at(newest) }

// MembershipHeight returns the height of the last block that changed the membership; 0 if there is
// none. It copies nothing.
func (s *State) MembershipHeight() ledger.Height { return s.group.last.height }

// MembershipAt returns the membership after the block at a height. The caller owns the copy.
func (s *State) MembershipAt(height ledger.Height) ledger.Membership { return s.group.at(height) }

// FormerMembers returns the members that left, by index, each with the last disk that counted for
// it. The caller owns the copy.
func (s *State) FormerMembers() []ledger.FormerMember {
	var former []ledger.FormerMember
	for _, each := range s.group.members {
		if each.left.number != 0 {
			former = append(former, ledger.FormerMember{GroupMember: each.group(newest),
				Left: each.left.height})
		}
	}
	return former
}

// attemptChange executes the steps of an administrative transaction that can fail. It changes
// nothing, so nothing has to be undone.
func (s *State) attemptChange(t *ledger.Transaction, root ledger.Hash,
	signatures []ledger.Signature) ledger.Result {
	if t.Change.Kind == ledger.ChangeAdmit {
		return whole(s.attemptAdmit(t, root, signatures))
	}
	switch {
	case !s.operatorsSigned(root, signatures):
		return whole(ledger.Unauthorised)
	case !s.Fresh(ledger.Operator, t.Nonce):
		return whole(ledger.StaleNonce)
	case s.group.says(t.Change):
		return applied
	case s.changing():
		return whole(ledger.MembershipChanging)
	}
	switch t.Change.Kind {
	case ledger.ChangeJoin:
		return whole(s.group.mayJoin(&t.Change.Member))
	case ledger.ChangeEngine:
		return whole(s.group.mayChangeEngine())
	}
	return whole(s.group.mayLeave(t.Change.Index))
}

// attemptAdmit is attemptChange for the admission of a disk. If the disk already counts, the
// transaction succeeds whatever membership its signer saw, because another member may have proposed
// the same.
func (s *State) attemptAdmit(t *ledger.Transaction, root ledger.Hash,
	signatures []ledger.Signature) ledger.Code {
	change := t.Change
	switch {
	case !s.group.signedByMember(change.Index, root, signatures) &&
		!s.operatorsSigned(root, signatures):
		return ledger.Unauthorised
	case s.group.says(change):
		return ledger.Applied
	// The signer saw another membership.
	case t.Nonce.Sequence != s.group.last.number+1:
		return ledger.StaleNonce
	case s.changing():
		return ledger.MembershipChanging
	}
	return s.group.mayAdmit(change.Index, change.Disk)
}

// changing reports whether the membership changed in one of the last ChangeRounds rounds, including
// this one.
func (s *State) changing() bool {
	return s.group.last.number > 0 && s.round < s.group.last.round+ledger.ChangeRounds
}

// signedByMember reports whether a member that may admit a disk for the member with this index has
// signed.
func (g *membershipState) signedByMember(index ledger.MemberIndex, root ledger.Hash,
	signatures []ledger.Signature) bool {
	return ledger.AdministratorSigned(root, signatures, func(key ledger.PublicKey) bool {
		membership := g.at(newest)
		return membership.MayAdmit(key, index)
	})
}

// says reports whether a change repeats the present state: a join of a member that is present with
// the same name, key and address, an admission of the disk that counts, or the name of the engine
// that the chain names.
func (g *membershipState) says(change *ledger.MembershipChange) bool {
	switch change.Kind {
	case ledger.ChangeJoin:
		return slices.ContainsFunc(g.members, func(each *member) bool {
			return each.left.number == 0 && each.Name == change.Member.Name &&
				bytes.Equal(each.Key, change.Member.Key) && each.Address == change.Member.Address
		})
	case ledger.ChangeAdmit:
		member := g.present(change.Index)
		return member != nil && member.admitted(newest).disk == change.Disk
	case ledger.ChangeEngine:
		engine, _ := g.engineAt(newest)
		return engine.Name == change.Engine
	}
	return false
}

// present returns the present member with an index, or nil.
func (g *membershipState) present(index ledger.MemberIndex) *member {
	if int(index) >= len(g.members) || g.members[index].left.number != 0 {
		return nil
	}
	return g.members[index]
}

// mayAdmit decides on a disk that does not count for the member at present. The member may have had
// the disk before, because it is admitted only after it has fetched the data that it lacks, as any
// other disk.
func (g *membershipState) mayAdmit(index ledger.MemberIndex, disk ledger.DiskID) ledger.Code {
	admitting := g.present(index)
	if admitting == nil {
		return ledger.UnknownMember
	}
	for _, each := range g.members {
		if each != admitting &&
			slices.ContainsFunc(each.disks, func(a admission) bool { return a.disk == disk }) {
			return ledger.MemberDiskTaken
		}
	}
	if len(admitting.disks) >= ledger.MaxMemberDisks {
		return ledger.TooManyDisks
	}
	return ledger.Applied
}

func (g *membershipState) mayJoin(joining *ledger.Member) ledger.Code {
	present := 0
	for _, each := range g.members {
		if bytes.Equal(each.Key, joining.Key) {
			return ledger.MemberKeyTaken
		}
		if each.left.number != 0 {
			continue
		}
		present++
		switch {
		case each.Name == joining.Name:
			return ledger.MemberNameTaken
		case each.Address == joining.Address:
			return ledger.MemberAddressTaken
		}
	}
	if present >= ledger.MaxMembers || len(g.members) >= ledger.MaxMemberIndexes {
		return ledger.TooManyMembers
	}
	return ledger.Applied
}

func (g *membershipState) mayLeave(index ledger.MemberIndex) ledger.Code {
	if g.present(index) == nil {
		return ledger.UnknownMember
	}
	if !slices.ContainsFunc(g.members, func(each *member) bool {
		return each.left.number == 0 && each.index != index
	}) {
		return ledger.LastMember
	}
	return ledger.Applied
}

// changeMembership makes a change that attemptChange allowed.
func (s *State) changeMembership(change *ledger.MembershipChange) {
	if s.group.says(change) {
		return
	}
	s.group.last = changePlace{number: s.group.last.number + 1, height: s.height, round: s.round}
	switch change.Kind {
	case ledger.ChangeEngine:
		s.changeEngine(change.Engine)
		return
	case ledger.ChangeJoin:
		joined := &member{Member: cloneMember(&change.Member),
			index: ledger.MemberIndex(len(s.group.members)), joined: s.group.last}
		joined.mark = mark{touched: true}
		s.group.members = append(s.group.members, joined)
		s.touchedMembers = append(s.touchedMembers, joined)
		return
	}
	changed := s.group.members[change.Index]
	if changed.isEntry() {
		changed.mark = s.keep(changed.appendEntry)
	} else {
		changed.mark = mark{touched: true}
	}
	s.touchedMembers = append(s.touchedMembers, changed)
	if change.Kind == ledger.ChangeAdmit {
		changed.disks = append(changed.disks, admission{disk: change.Disk,
			changePlace: s.group.last})
	} else {
		changed.left = s.group.last
	}
}

// appendEntry appends the entry: the member, the place where it joined and the place where it left.
// If disks were named, their count and each disk with its place follow.
func (m *member) appendEntry(to []byte) (entry []byte, keyLength int) {
	start := len(to)
	to = append(binary.BigEndian.AppendUint32(append(to, kindMember), uint32(m.index)), 0)
	keyLength = len(to) - start
	to = codec.AppendString(to, m.Name)
	to = codec.AppendString(to, m.Key)
	to = codec.AppendString(to, m.Address)
	to = m.left.append(m.joined.append(to))
	if len(m.disks) > 0 {
		to = binary.AppendUvarint(to, uint64(len(m.disks)))
		for i := range m.disks {
			to = m.disks[i].append(append(to, m.disks[i].disk[:]...))
		}
	}
	return to, keyLength
}

func (r *reader) member() ledger.Member {
	return ledger.Member{Name: r.String("bytes of name", ledger.MaxOrganisationName),
		Key:     r.Bytes("bytes of key", ledger.MaxMemberKey),
		Address: r.String("bytes of address", ledger.MaxAddress)}
}

func cloneMember(m *ledger.Member) ledger.Member {
	return ledger.Member{Name: strings.Clone(m.Name), Key: slices.Clone(m.Key),
		Address: strings.Clone(m.Address)}
}

func (p *changePlace) append(to []byte) []byte {
	to = binary.AppendUvarint(to, p.number)
	to = binary.AppendUvarint(to, uint64(p.height))
	return binary.AppendUvarint(to, uint64(p.round))
}

func (r *reader) changePlace() changePlace {
	return changePlace{number: r.Uvarint(), height: ledger.Height(r.Uvarint()),
		round: ledger.Round(r.Uvarint())}
}

// admissions reads the disks at the end of a member's entry, if there are any.
func (r *reader) admissions() []admission {
	if r.Err != nil || len(r.Data) == 0 {
		return nil
	}
	const smallest = len(ledger.DiskID{}) + 3
	disks := make([]admission, r.Count("disks", ledger.MaxMemberDisks, smallest))
	if len(disks) == 0 {
		r.Fail("no disks")
	}
	for i := range disks {
		copy(disks[i].disk[:], r.Take(len(ledger.DiskID{})))
		disks[i].changePlace = r.changePlace()
	}
	return disks
}

// restore puts the entry of a member into the group. It reports whether there was one already.
func (g *membershipState) restore(key []byte, r *reader) (of entry, again bool, err error) {
	if len(key) != 1+4+1 {
		return nil, false, fmt.Errorf("%w: key %x", ErrEntry, key)
	}
	restored := &member{index: ledger.MemberIndex(binary.BigEndian.Uint32(key[1:])),
		Member: r.member(), joined: r.changePlace(), left: r.changePlace()}
	restored.disks = r.admissions()
	if r.Err == nil && !restored.isEntry() {
		r.Fail("a member that never changed")
	}
	for _, place := range [...]changePlace{
		restored.joined, restored.left, restored.admitted(newest).changePlace,
	} {
		if place.number > g.last.number {
			g.last = place
		}
	}
	place, found := slices.BinarySearchFunc(g.members,
		restored.index, func(each *member, index ledger.MemberIndex) int {
			return cmp.Compare(each.index, index)
		})
	if !found {
		g.members = slices.Insert(g.members, place, restored)
		return restored, false, nil
	}
	before := g.members[place]
	g.members[place] = restored
	return restored, before.isEntry(), nil
}
