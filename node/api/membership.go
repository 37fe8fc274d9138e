package api

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// genesisHashPrefix is hashed before the genesis to make the hash of a genesis.
const genesisHashPrefix = "ledgerd/genesis/1\x00"

// GetGenesis returns the genesis of a shard's chain. It follows from the own one and from the
// shards that were added to the book, so no other node has to be asked.
func (s *Service) GetGenesis(ctx context.Context,
	request *connect.Request[ledgerdv1.GetGenesisRequest]) (
	*connect.Response[ledgerdv1.GetGenesisResponse], error) {
	opened := s.backend.Store()
	genesis := opened.Genesis()
	if shard := request.Msg.Shard; shard != nil && ledger.ShardID(*shard) != opened.Shard() {
		var err error
		if genesis, err = opened.GenesisOf(ledger.ShardID(*shard)); err != nil {
			return nil, s.answersFor(shard) // there is no such shard
		}
		if err := s.addedForGood(genesis.Shard); err != nil {
			return nil, err
		}
	}
	hash := genesis.Hash()
	return connect.NewResponse(&ledgerdv1.GetGenesisResponse{
		Canonical: genesis.Encode(), Hash: hash[:], HashHex: hash.String(),
		HashPrefix: []byte(genesisHashPrefix),
	}), nil
}

// clusterState is the shard's state: the members from the chain, their condition from the node.
type clusterState struct {
	report.ClusterState
	membership ledger.Membership // with the same members as ClusterState, in the same order
	former     []ledger.FormerMember
	charter    ledger.Charter
	book       ledger.Hash
	shardCount uint32
	// bookChanges counts the changes of the book's shards.
	bookChanges uint64
}

// cluster returns the shard's state.
func (s *Service) cluster() clusterState {
	state := clusterState{ClusterState: s.backend.ClusterState()}
	opened := s.backend.Store()
	state.membership, state.former = opened.Membership(), opened.FormerMembers()
	state.charter = opened.Charter()
	if tree := opened.ShardTree(); tree != nil {
		state.bookChanges = opened.BookChanges()
		state.book, state.shardCount, state.Shard = opened.Book(), uint32(tree.Shards()),
			uint32(opened.Shard())
		state.bookChanges = opened.BookChanges()
	}
	seen := make(map[uint32]*report.MemberState, len(state.Members))
	for i := range state.Members {
		seen[state.Members[i].Index] = &state.Members[i]
	}
	members := make([]report.MemberState, len(state.membership.Members))
	for i := range members {
		member := &state.membership.Members[i]
		if known := seen[uint32(member.Index)]; known != nil {
			members[i] = *known
		} else {
			members[i] = report.MemberState{Index: uint32(member.Index), Name: member.Name,
				FabricAddress: member.Address}
		}
	}
	state.Members = members
	return state
}

// standingOf returns the state of a member, as far as the node knows it.
func standingOf(member *report.MemberState, node *report.NodeState) ledgerdv1.MemberStanding {
	switch {
	case member.Self && node.Mode == report.ModeOrdering,
		!member.Self && member.Member && member.Connected:
		return ledgerdv1.MemberStanding_MEMBER_STANDING_ORDERING
	case member.Self, member.Connected:
		return ledgerdv1.MemberStanding_MEMBER_STANDING_FOLLOWING
	case member.LastHeard.IsZero():
		return ledgerdv1.MemberStanding_MEMBER_STANDING_NEVER_SEEN
	}
	return ledgerdv1.MemberStanding_MEMBER_STANDING_UNREACHABLE
}

func changeToProto(change *ledger.MembershipChange) *ledgerdv1.MembershipChange {
	if change == nil {
		return nil
	}
	switch change.Kind {
	case ledger.ChangeLeave:
		return &ledgerdv1.MembershipChange{Change: &ledgerdv1.MembershipChange_Leave{
			Leave: uint32(change.Index)}}
	case ledger.ChangeAdmit:
		return &ledgerdv1.MembershipChange{Change: &ledgerdv1.MembershipChange_Admit{
			Admit: &ledgerdv1.DiskAdmission{Index: uint32(change.Index),
				Disk: change.Disk.String()},
		}}
	case ledger.ChangeEngine:
		return &ledgerdv1.MembershipChange{Change: &ledgerdv1.MembershipChange_Engine{
			Engine: change.Engine}}
	}
	return &ledgerdv1.MembershipChange{Change: &ledgerdv1.MembershipChange_Join{
		Join: &ledgerdv1.Member{
			Name: change.Member.Name, Key: change.Member.Key, Address: change.Member.Address,
		}}}
}

// changeFromProto reads a membership change, or nil if there is none.
func changeFromProto(message *ledgerdv1.MembershipChange) (*ledger.MembershipChange, error) {
	if message == nil {
		return nil, nil
	}
	switch change := message.GetChange().(type) {
	case *ledgerdv1.MembershipChange_Join:
		return &ledger.MembershipChange{Kind: ledger.ChangeJoin, Member: ledger.Member{
			Name: change.Join.GetName(), Key: change.Join.GetKey(),
			Address: change.Join.GetAddress(),
		}}, nil
	case *ledgerdv1.MembershipChange_Leave:
		return &ledger.MembershipChange{Kind: ledger.ChangeLeave,
			Index: ledger.MemberIndex(change.Leave)}, nil
	case *ledgerdv1.MembershipChange_Admit:
		disk, err := ledger.ParseDiskID(change.Admit.GetDisk())
		if err != nil {
			return nil, fmt.Errorf("membership_change: %w", err)
		}
		return &ledger.MembershipChange{
			Kind: ledger.ChangeAdmit, Index: ledger.MemberIndex(change.Admit.GetIndex()),
			Disk: disk,
		}, nil
	case *ledgerdv1.MembershipChange_Engine:
		return &ledger.MembershipChange{Kind: ledger.ChangeEngine, Engine: change.Engine}, nil
	}
	return nil, fmt.Errorf("membership_change: it names no member that joins or leaves, no disk " +
		"and no engine")
}

// MembershipFromProto reads the members and their disks from a shard's state. It returns
// ledger.ErrMembership or ledger.ErrMalformed if the state is not a valid group.
func MembershipFromProto(state *ledgerdv1.ClusterState) (ledger.Membership, error) {
	membership := ledger.Membership{Number: state.GetMembershipNumber(),
		Height: ledger.Height(state.GetMembershipHeight())}
	if at := state.GetOrdering().GetEngineHeight(); at > 0 {
		membership.Engine = ledger.EngineChoice{Name: state.GetOrdering().GetEngine(),
			Height: ledger.Height(at)}
	}
	for _, member := range state.GetMembers() {
		disk, err := ledger.ParseDiskID(member.GetDisk())
		if err != nil {
			return ledger.Membership{}, fmt.Errorf("member %d: %w", member.GetIndex(), err)
		}
		membership.Members = append(membership.Members, ledger.GroupMember{
			Index: ledger.MemberIndex(member.GetIndex()),
			Member: ledger.Member{Name: member.GetName(), Key: member.GetKey(),
				Address: member.GetAddress()},
			Joined: ledger.Height(member.GetJoinedHeight()),
			Disk:   disk,
		})
	}
	return membership, membership.Validate()
}
