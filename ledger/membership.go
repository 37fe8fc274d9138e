package ledger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/clock"
	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// The members of a chain change one at a time, by transactions that an operator signs. This keeps
// the chain from forking: if two groups differ by one member that joined or left, any majority of
// one shares a member with any majority of the other. Groups of equal, odd size that differ by one
// member, as after an exchange in one step, lack this property: {1,3} is a majority of {1,2,3}, and
// {2,4} is a majority of {1,2,4}. Therefore no change exchanges a member. To replace a member,
// first remove it and then add the other. In this order a dead member never costs the others their
// majority.

// MemberIndex numbers the members of a chain in the order in which they joined. The members of the
// genesis come first, from 0. An index belongs to one member for ever: it is not used again after
// the member left.
type MemberIndex = clock.MemberIndex

// Bounds of changes of the membership.
const (
	// MaxMemberIndexes bounds the number of members that a chain can ever have had.
	MaxMemberIndexes = 1 << 16
	// NodeKeySize is the size in bytes of the ed25519 public key of a joining node.
	NodeKeySize = 32
	// ChangeRounds is the number of rounds, including the round of a change, in which no other
	// change is possible. After them, ordering changes over to the new group.
	ChangeRounds = 3
	// MaxEngineName is the maximum length of an engine's name.
	MaxEngineName = 32
	// MaxEngineChanges bounds the changes of the engine that a chain can ever have had. The state
	// keeps all of them, because MembershipAt returns the engine of any height.
	MaxEngineChanges = 1 << 16
)

// ChangeKind is the kind of a change of the membership. Its text form is join, leave, admit or
// engine.
type ChangeKind uint8

// The kinds of changes. Their numbers are part of transactions' ids and never change.
const (
	// ChangeJoin adds a member.
	ChangeJoin ChangeKind = 1
	// ChangeLeave removes a member.
	ChangeLeave ChangeKind = 2
	// ChangeAdmit names the disk that counts for a member.
	ChangeAdmit ChangeKind = 3
	// ChangeEngine names the engine by which the members order. It is in blocks from EnginesVersion
	// on.
	ChangeEngine ChangeKind = 4
)

// String returns join, leave, admit or engine.
func (k ChangeKind) String() string {
	switch k {
	case ChangeJoin:
		return "join"
	case ChangeLeave:
		return "leave"
	case ChangeAdmit:
		return "admit"
	case ChangeEngine:
		return "engine"
	}
	return fmt.Sprintf("change %d", uint8(k))
}

// MarshalText returns join, leave, admit or engine.
func (k ChangeKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText parses the output of MarshalText, or returns ErrMalformed.
func (k *ChangeKind) UnmarshalText(text []byte) error {
	switch string(text) {
	case "join":
		*k = ChangeJoin
	case "leave":
		*k = ChangeLeave
	case "admit":
		*k = ChangeAdmit
	case "engine":
		*k = ChangeEngine
	default:
		return fmt.Errorf("%w: %.20q is no kind of change: join, leave, admit or engine",
			ErrMalformed, text)
	}
	return nil
}

// MembershipChange is the change that an administrative transaction makes to the membership: a
// member joins, a member leaves, a disk is named for a member, or an engine is named for all.
//
// The operators sign a join, a leave or a change of the engine (see Charter). They or a member sign
// an admission, in a Signature with Operator as its organisation; a member signs with its node key.
// A member cannot sign for its own disk, unless it is the only member. The nonce of an admission is
// in AdmitStream and is the number of the membership that it makes. So it can take effect only on
// the membership that its signer saw, and an old proposal that arrives late changes nothing.
type MembershipChange struct {
	Kind ChangeKind `json:"kind"`
	// Member is the joining member. No present member has its name or address, and no member ever
	// had its key.
	Member Member `json:"member,omitzero"`
	// Index is the member that leaves, or the member that Disk is for.
	Index MemberIndex `json:"index,omitempty"`
	// Disk is the disk that will count for the member. It was never another member's.
	Disk DiskID `json:"disk,omitzero"`
	// Engine is the engine by which the members will order. The chain takes any name: the nodes
	// know which engines there are.
	Engine string `json:"engine,omitempty"`
}

// OfMembers reports whether the change adds or removes a member.
func (c *MembershipChange) OfMembers() bool {
	return c.Kind == ChangeJoin || c.Kind == ChangeLeave
}

// EngineChoice is the engine of atomic broadcast that a chain names for its members.
type EngineChoice struct {
	// Name is the engine's name. It is empty if the chain names none: the members then order by the
	// engine of their settings.
	Name string `json:"name,omitempty"`
	// Height is that of the block that named it. The members order by it from the next eon on.
	Height Height `json:"height,omitempty"`
}

// GroupMember is a present member.
type GroupMember struct {
	Index MemberIndex `json:"index"`
	Member
	// Joined is the height of the block that added the member; 0 for a member of the genesis.
	Joined Height `json:"joined,omitempty"`
	// Disk is the disk that counts for the member. Zero means that the chain has named none, and
	// that the member's original disk counts.
	Disk DiskID `json:"disk,omitzero"`
}

// FormerMember is a member that left.
type FormerMember struct {
	GroupMember
	// Left is the height of the block that removed the member.
	Left Height `json:"left"`
}

// Membership is the group that keeps a chain, after some block.
type Membership struct {
	// Number is the number of changes since the genesis.
	Number uint64 `json:"number"`
	// Height and Round are those of the block that made the last change; 0 if there was none.
	Height Height `json:"height,omitempty"`
	Round  Round  `json:"round,omitempty"`
	// Members are the present members by index.
	Members []GroupMember `json:"members"`
	// Engine is the one that the chain names.
	Engine EngineChoice `json:"engine,omitzero"`
}

// Majority returns the smallest number that is more than half of the members.
func (m *Membership) Majority() int { return clock.Majority(len(m.Members)) }

// Find returns the present member with an index.
func (m *Membership) Find(index MemberIndex) (GroupMember, bool) {
	return m.find(func(member *GroupMember) bool { return member.Index == index })
}

// ByName returns the present member with a name.
func (m *Membership) ByName(name string) (GroupMember, bool) {
	return m.find(func(member *GroupMember) bool { return member.Name == name })
}

// ByKey returns the present member with a node's public key.
func (m *Membership) ByKey(key []byte) (GroupMember, bool) {
	return m.find(func(member *GroupMember) bool { return bytes.Equal(member.Key, key) })
}

// MayAdmit reports whether the node with this key may admit a disk for the member with this index.
// The node must be another present member, or that member itself if it is the only one.
func (m *Membership) MayAdmit(key PublicKey, index MemberIndex) bool {
	signer, present := m.ByKey(key[:])
	return present && (signer.Index != index || len(m.Members) == 1)
}

func (m *Membership) find(is func(*GroupMember) bool) (GroupMember, bool) {
	for i := range m.Members {
		if is(&m.Members[i]) {
			return m.Members[i], true
		}
	}
	return GroupMember{}, false
}

// ErrMembership reports that a membership is invalid: it has no members, they are not in the order
// of their indexes, or two have the same name, key or disk.
var ErrMembership = errors.New("ledger: invalid membership")

// Validate returns ErrMembership unless the membership has members, in the order of their indexes,
// with distinct names, keys and named disks. It is for memberships that do not come from a chain.
func (m *Membership) Validate() error {
	if len(m.Members) == 0 || len(m.Members) > MaxMembers {
		return fmt.Errorf("%w: %d members, 1 to %d allowed", ErrMembership, len(m.Members),
			MaxMembers)
	}
	names, keys := make(map[string]bool, len(m.Members)), make(map[string]bool, len(m.Members))
	disks := make(map[DiskID]bool)
	for i := range m.Members {
		member := &m.Members[i]
		switch {
		case i > 0 && member.Index <= m.Members[i-1].Index || member.Index >= MaxMemberIndexes:
			return fmt.Errorf("%w: index %d out of order", ErrMembership, member.Index)
		case !validWord(member.Name, MaxOrganisationName) || names[member.Name]:
			return fmt.Errorf("%w: name %.80q", ErrMembership, member.Name)
		case len(member.Key) == 0 || len(member.Key) > MaxMemberKey || keys[string(member.Key)]:
			return fmt.Errorf("%w: key of member %s", ErrMembership, member.Name)
		case len(member.Address) > MaxAddress:
			return fmt.Errorf("%w: address of member %s", ErrMembership, member.Name)
		case disks[member.Disk]:
			return fmt.Errorf("%w: disk of member %s", ErrMembership, member.Name)
		}
		if !member.Disk.IsZero() {
			disks[member.Disk] = true
		}
		names[member.Name], keys[string(member.Key)] = true, true
	}
	return nil
}

// Membership returns the group of the genesis, with which the chain begins.
func (g *Genesis) Membership() Membership {
	membership := Membership{Members: make([]GroupMember, len(g.Members))}
	for i, member := range g.Members {
		membership.Members[i] = GroupMember{Index: MemberIndex(i), Member: member.copy()}
	}
	return membership
}

func (m *Member) copy() Member {
	return Member{Name: strings.Clone(m.Name), Key: slices.Clone(m.Key),
		Address: strings.Clone(m.Address)}
}

// Validate returns ErrMalformed or ErrName unless the member may join some chain. It checks the
// rules that do not depend on the chain.
func (m *Member) Validate() error {
	switch {
	case !validWord(m.Name, MaxOrganisationName):
		return fmt.Errorf("%w: %.80q is no member's name (1 to %d letters, digits, '-', '_', '.')",
			ErrName, m.Name, MaxOrganisationName)
	case len(m.Key) != NodeKeySize:
		return fmt.Errorf("%w: a node's key has %d bytes, not %d", ErrMalformed, NodeKeySize,
			len(m.Key))
	case m.Address == "" || len(m.Address) > MaxAddress || !printable(m.Address):
		return fmt.Errorf("%w: a member's address is 1 to %d bytes of printable text", ErrMalformed,
			MaxAddress)
	}
	return nil
}

// checkForm checks that the change has the fields of its kind and no others.
func (c *MembershipChange) checkForm() error {
	nobody := c.Member.Name == "" && len(c.Member.Key) == 0 && c.Member.Address == ""
	switch {
	case c.Kind == ChangeEngine && nobody && c.Index == 0 && c.Disk.IsZero():
		return ValidateEngineName(c.Engine)
	case c.Engine != "":
	case c.Kind == ChangeJoin && c.Index == 0 && c.Disk.IsZero():
		return c.Member.Validate()
	case c.Kind == ChangeLeave && nobody && c.Disk.IsZero():
		return c.checkIndex()
	case c.Kind == ChangeAdmit && nobody && !c.Disk.IsZero():
		return c.checkIndex()
	}
	return fmt.Errorf("%w: a change of the membership is a join of a member, a leave of an index, "+
		"an admission of a disk for an index, or the name of an engine", ErrMalformed)
}

// ValidateEngineName returns ErrName unless a chain may name an engine so.
func ValidateEngineName(name string) error {
	// The names of engines may have a plus.
	if word := strings.ReplaceAll(name, "+", "-"); !validWord(word, MaxEngineName) {
		return fmt.Errorf("%w: %.80q is no engine's name (1 to %d letters, digits, '-', '_', '.', "+
			"'+')", ErrName, name, MaxEngineName)
	}
	return nil
}

func (c *MembershipChange) checkIndex() error {
	if c.Index >= MaxMemberIndexes {
		return fmt.Errorf("%w: member %d, indexes are below %d", ErrMalformed, c.Index,
			MaxMemberIndexes)
	}
	return nil
}

// append appends the canonical encoding: the kind (1 byte), then the member for a join, the index
// (uvarint) for a leave, the index and the disk (16 bytes) for an admission, or the name (string)
// of an engine.
func (c *MembershipChange) append(to []byte) []byte {
	to = append(to, byte(c.Kind))
	switch c.Kind {
	case ChangeLeave:
		return binary.AppendUvarint(to, uint64(c.Index))
	case ChangeAdmit:
		return append(binary.AppendUvarint(to, uint64(c.Index)), c.Disk[:]...)
	case ChangeEngine:
		return codec.AppendString(to, c.Engine)
	}
	return c.Member.append(to)
}

func (m *Member) append(to []byte) []byte {
	to = codec.AppendString(to, m.Name)
	to = codec.AppendString(to, m.Key)
	return codec.AppendString(to, m.Address)
}

func (r *reader) membershipChange() *MembershipChange {
	change := &MembershipChange{Kind: ChangeKind(r.Byte())}
	switch change.Kind {
	case ChangeJoin:
		change.Member = r.member()
	case ChangeLeave:
		change.Index = r.memberIndex()
	case ChangeAdmit:
		change.Index, change.Disk = r.memberIndex(), r.disk()
	case ChangeEngine:
		change.Engine = r.String("bytes of an engine's name", MaxEngineName)
	default:
		r.Fail("%s of the membership", change.Kind)
	}
	return change
}

func (r *reader) memberIndex() MemberIndex {
	index := r.Uvarint()
	if index >= MaxMemberIndexes {
		r.Fail("member %d", index)
		return 0
	}
	return MemberIndex(index)
}

func (r *reader) disk() (disk DiskID) {
	copy(disk[:], r.Take(len(disk)))
	return disk
}

func (r *reader) member() Member {
	return Member{Name: r.String("bytes of name", MaxOrganisationName),
		Key:     r.Bytes("bytes of key", MaxMemberKey),
		Address: r.String("bytes of address", MaxAddress)}
}

// MembershipChange returns the change of the membership that the block applied, or nil. A block
// applies at most one. An applied change that only repeats the present state is also returned; it
// leaves the membership's Number as it was.
func (b *Block) MembershipChange() *MembershipChange {
	for i := range b.Unpacked {
		if change := b.Unpacked[i].Decoded.Change; change != nil && b.Unpacked[i].Result.OK() {
			return change
		}
	}
	return nil
}

// MembershipChangeIn reports, without executing anything, whether a round message holds a signed
// change of this chain's membership; chain is the genesis' hash. It accepts a good signature of any
// key, because only execution knows the present operators and members, and how many of them have to
// sign. The result depends only on the arguments. A bundle without a change costs some nanoseconds.
//
// Every change that execution applies is found. Execution may refuse a change that was found. Such
// a false positive only costs a change of eon to the same members. No node proposes one that its
// charter does not allow, and a member that lies may end an eon without it, by a mark.
func MembershipChangeIn(payload []byte, genesis *Genesis, chain Hash) bool {
	if !mayHoldChange(payload) {
		return false
	}
	// Decode as sealing does, so that both accept the same batches.
	batch, err := DecodeBatch(payload)
	if err != nil || batch.Sharded() && !genesis.Sharded() {
		return false
	}
	for _, encoded := range batch.Bundles {
		if !administrative(encoded) {
			continue
		}
		bundle, err := DecodeBundle(encoded)
		if err != nil {
			continue
		}
		t := bundle.Transaction(0)
		if t.Ledger != chain {
			continue
		}
		if AdministratorSigned(bundle.root, bundle.signatures, func(PublicKey) bool {
			return true
		}) {
			return true
		}
	}
	return false
}

// mayHoldChange reports whether a batch may hold a change. It scans the bundles without decoding
// them.
func mayHoldChange(payload []byte) bool {
	const header = 1 + 8 + 8 + HashSize
	if len(payload) <= header {
		return false
	}
	rest := payload[header:]
	count, length := binary.Uvarint(rest)
	for rest = rest[max(length, 0):]; count > 0; count-- {
		size, length := binary.Uvarint(rest)
		if length <= 0 || size > uint64(len(rest)-length) {
			return false
		}
		if administrative(rest[length : length+int(size)]) {
			return true
		}
		rest = rest[length+int(size):]
	}
	return false
}

// administrative reports whether an encoded bundle begins like a bundle of one administrative
// transaction. Such a transaction is always alone in its bundle.
func administrative(bundle []byte) bool {
	if len(bundle) < 2 || bundle[0] != bundleVersion || bundle[1] != 1 {
		return false
	}
	_, length := binary.Uvarint(bundle[2:])
	return length > 0 && len(bundle) > 2+length && bundle[2+length] == administrativeVersion
}

// AdministratorSigned reports whether one of the signatures without organisation is good and has a
// key that satisfies may: the key of an operator, or of a member that admits a disk.
func AdministratorSigned(root Hash, signatures []Signature, may func(PublicKey) bool) bool {
	for i := range signatures {
		signature := &signatures[i]
		if signature.Organisation == Operator && may(signature.Key) &&
			signature.verify(signingMessage(root, false)) {
			return true
		}
	}
	return false
}
