package api_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
)

// Operators' transactions take the same path as all others. Afterwards the shard's state shows the
// changed members.
func TestMembership(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(3)
	b := newBank(t, apitest.Options{Nodes: 3, Genesis: *genesis}, api.Options{})
	operator := ledgertest.NewOperator(genesis)
	cluster := func() *ledgerdv1.ClusterState {
		t.Helper()
		answer, err := b.client.GetCluster(b.context(),
			connect.NewRequest(&ledgerdv1.GetClusterRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		return answer.Msg.GetCluster()
	}
	before := cluster()
	membership, err := api.MembershipFromProto(before)
	if err != nil || membership.Number != 0 || len(membership.Members) != 3 ||
		!bytes.Equal(membership.Members[2].Key, genesis.Members[2].Key) {
		t.Fatalf("at first: %+v, %v", membership, err)
	}
	joined := b.submit(ledgerdv1.Level_LEVEL_DURABLE,
		operator.Join(ledgertest.Member(7))).Transactions[0]
	if joined.State != ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE {
		t.Fatalf("a join is %v", joined)
	}
	early := b.submit(ledgerdv1.Level_LEVEL_DURABLE, operator.Leave(0)).Transactions[0]
	if early.ReasonCode != "membership_changing" {
		t.Fatalf("a leave at once is %v", early)
	}
	for range 2 {
		b.done(transfer("bank:mint", "bank:a", 1))
	}
	b.submit(ledgerdv1.Level_LEVEL_DURABLE, operator.Leave(0))
	after := cluster()
	membership, err = api.MembershipFromProto(after)
	if err != nil || membership.Number != 2 || len(membership.Members) != 3 ||
		membership.Members[2].Index != 3 ||
		membership.Members[2].Joined != ledger.Height(joined.Height) {
		t.Fatalf("after a join and a leave: %+v, %v", membership, err)
	}
	if len(after.GetFormer()) != 1 || after.GetFormer()[0].GetName() != "node-0" ||
		after.GetFormer()[0].GetLeftHeight() != after.GetMembershipHeight() {
		t.Errorf("former members: %v", after.GetFormer())
	}
	for range 2 {
		b.done(transfer("bank:mint", "bank:a", 1))
	}
	admit := func(signer string) *ledger.Bundle {
		head := b.cluster.Node(0).Store().Head().Height
		return ledgertest.Admit(signer, genesis, b.cluster.Node(0).Store().Membership(), 2,
			ledgertest.Disk(1), head)
	}
	_, err = b.client.Submit(b.context(), connect.NewRequest(&ledgerdv1.SubmitRequest{
		Bundle: api.BundleToProto(admit("node-2")), Wait: ledgerdv1.Level_LEVEL_DURABLE,
	}))
	codeIs(t, err, connect.CodePermissionDenied)
	named := b.submit(ledgerdv1.Level_LEVEL_DURABLE, admit("node-1")).Transactions[0]
	if named.State != ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE {
		t.Fatalf("an admission is %v", named)
	}
	with, err := api.MembershipFromProto(cluster())
	if err != nil || with.Number != 3 || with.Members[1].Disk != ledgertest.Disk(1) ||
		!with.Members[0].Disk.IsZero() {
		t.Errorf("after an admission: %+v, %v", with, err)
	}
	block, err := b.client.GetBlock(b.context(),
		connect.NewRequest(&ledgerdv1.GetBlockRequest{
			Block: &ledgerdv1.GetBlockRequest_Head{Head: true}, PageSize: 1}))
	if err != nil || block.Msg.GetBlock().GetTransactions()[0].GetMembershipChange().GetAdmit().
		GetDisk() != ledgertest.Disk(1).String() {
		t.Errorf("the admission's block is %v, %v", block, err)
	}
	var standings []ledgerdv1.MemberStanding
	for _, member := range after.GetMembers() {
		standings = append(standings, member.GetStanding())
	}
	ordering := ledgerdv1.MemberStanding_MEMBER_STANDING_ORDERING
	if want := []ledgerdv1.MemberStanding{ordering, ordering,
		ledgerdv1.MemberStanding_MEMBER_STANDING_NEVER_SEEN}; !slices.Equal(standings, want) {
		t.Errorf("standings %v, want %v", standings, want)
	}
	found, err := b.client.GetTransaction(b.context(),
		connect.NewRequest(&ledgerdv1.GetTransactionRequest{IdHex: joined.IdHex}))
	if err != nil ||
		found.Msg.GetTransaction().GetBody().GetMembershipChange().GetJoin().GetName() != "node-7" {
		t.Errorf("the join reads as %v, %v", found, err)
	}
}

// A node that joins gets the genesis, and can check it.
func TestGenesis(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	answer, err := b.client.GetGenesis(b.context(),
		connect.NewRequest(&ledgerdv1.GetGenesisRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256(append(answer.Msg.GetHashPrefix(), answer.Msg.GetCanonical()...))
	decoded, err := ledger.DecodeGenesis(answer.Msg.GetCanonical())
	if err != nil || decoded.Hash() != b.cluster.Genesis().Hash() ||
		ledger.Hash(answer.Msg.GetHash()) != hash ||
		ledger.Hash(hash).String() != answer.Msg.GetHashHex() {
		t.Errorf("%v: %v", answer.Msg, err)
	}
}

// A snapshot arrives in parts, and makes a store that accepts further blocks.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	for range 5 {
		b.done(transfer("bank:mint", "bank:a", 1))
	}
	stream, err := b.client.GetSnapshot(b.context(),
		connect.NewRequest(&ledgerdv1.GetSnapshotRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	var snapshot []byte
	for stream.Receive() {
		snapshot = append(snapshot, stream.Msg().GetPart()...)
	}
	if err := errors.Join(stream.Err(), stream.Close()); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	head, err := store.Restore(b.context(), dir, b.cluster.Genesis(), store.Options{},
		bytes.NewReader(snapshot), func(ledger.Height, ledger.Hash, bool) error {
			return nil
		})
	if err != nil || head != b.cluster.Node(0).Store().Head() {
		t.Errorf("restored %+v, %v", head, err)
	}
	empty := apitest.Serve(t, apitest.NewCluster(t, apitest.Options{Manual: true}).Node(0),
		api.Options{})
	none, err := ledgerdv1connect.NewLedgerServiceClient(http.DefaultClient,
		empty.URL).GetSnapshot(b.context(), connect.NewRequest(&ledgerdv1.GetSnapshotRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	defer none.Close()
	if none.Receive() || connect.CodeOf(none.Err()) != connect.CodeFailedPrecondition {
		t.Errorf("of a node without blocks: %v", none.Err())
	}
}

// Preparing the parts of a change gives the same bytes as the Go package, and malformed changes are
// refused.
func TestPrepareMembershipChange(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(3)
	b := newBank(t, apitest.Options{Nodes: 3, Genesis: *genesis}, api.Options{})
	prepare := func(change *ledgerdv1.MembershipChange) (
		*connect.Response[ledgerdv1.PrepareResponse], error) {
		return b.client.Prepare(b.context(),
			connect.NewRequest(&ledgerdv1.PrepareRequest{Transactions: []*ledgerdv1.TransactionBody{
				{Nonce: &ledgerdv1.Nonce{Stream: streamOf(change), Sequence: 1},
					MembershipChange: change},
			}}))
	}
	member := ledgertest.Member(3)
	for name, test := range map[string]struct {
		change *ledgerdv1.MembershipChange
		want   *ledger.Bundle
	}{
		"join": {
			&ledgerdv1.MembershipChange{Change: &ledgerdv1.MembershipChange_Join{
				Join: &ledgerdv1.Member{Name: member.Name, Key: member.Key,
					Address: member.Address}}},
			ledgertest.NewOperator(genesis).Join(member),
		},
		"admit": {
			&ledgerdv1.MembershipChange{Change: &ledgerdv1.MembershipChange_Admit{
				Admit: &ledgerdv1.DiskAdmission{Index: 1, Disk: ledgertest.Disk(7).String()}}},
			admitBody(genesis, 1, 7),
		},
		"leave": {&ledgerdv1.MembershipChange{Change: &ledgerdv1.MembershipChange_Leave{Leave: 2}},
			ledgertest.NewOperator(genesis).Leave(2)},
	} {
		answer, err := prepare(test.change)
		if err != nil || !bytes.Equal(answer.Msg.GetTransactions()[0], test.want.Body(0)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]*ledgerdv1.MembershipChange{
		"nothing":      {},
		"nobody joins": {Change: &ledgerdv1.MembershipChange_Join{}},
		"no disk": {Change: &ledgerdv1.MembershipChange_Admit{
			Admit: &ledgerdv1.DiskAdmission{Index: 1}}},
		"half a disk": {Change: &ledgerdv1.MembershipChange_Admit{
			Admit: &ledgerdv1.DiskAdmission{Index: 1, Disk: "0011"}}},
		"an index of 2³²": {Change: &ledgerdv1.MembershipChange_Leave{Leave: 1<<32 - 1}},
	} {
		if _, err := prepare(change); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// streamOf returns the nonce stream that a change must have.
func streamOf(change *ledgerdv1.MembershipChange) uint64 {
	if change.GetAdmit() != nil {
		return ledger.AdmitStream
	}
	return 0
}

// admitBody is the bundle of an admission that does not expire.
func admitBody(genesis *ledger.Genesis, index ledger.MemberIndex, disk int) *ledger.Bundle {
	admit := *ledgertest.Admit("operator", genesis, genesis.Membership(),
		index, ledgertest.Disk(disk), 0).Transaction(0)
	admit.LastValid = 0
	return ledgertest.NewOperator(genesis).Bundle("operator", admit)
}

// A shard's state with an invalid disk id is not a valid group.
func TestMembershipFromProtoRefusesDisks(t *testing.T) {
	t.Parallel()
	for _, disk := range []string{"0011", "zz"} {
		state := &ledgerdv1.ClusterState{Members: []*ledgerdv1.MemberState{{Name: "a",
			Key: []byte("key"), Disk: disk}}}
		if _, err := api.MembershipFromProto(state); !errors.Is(err, ledger.ErrMalformed) {
			t.Errorf("%q: %v", disk, err)
		}
	}
}
