package route_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Once the chain asks for deadlines, a node refuses a transaction across shards without one, and
// says what to do. One whose deadline is over takes effect nowhere.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(1, 0, 0, 0)
	genesis.Version = ledger.DeadlineVersion
	b := newBookFrom(t, genesis)
	crossing := b.orgs[1].Transfer("org1:mint", "org2:a", 5)
	_, err := b.clients[0].Submit(b.context(), connect.NewRequest(&ledgerdv1.SubmitRequest{
		Bundle: api.BundleToProto(b.signed(crossing))}))
	codeIs(t, err, connect.CodeInvalidArgument)
	if !strings.Contains(err.Error(), "it concerns shards [1 2] and names no deadline") {
		t.Error(err)
	}
	crossing.Deadline = genesis.Time + 60_000
	bundle := b.signed(crossing)
	b.settled(b.submit(0, ledgerdv1.Level_LEVEL_DURABLE, bundle), 1)
	shown := b.everywhere(bundle.ID(0), "0 passed", "1 settled", "2 settled")
	if got := shown.GetBody().GetDeadline(); got != uint64(crossing.Deadline) {
		t.Errorf("deadline %d", got)
	}
	late := b.orgs[1].Transfer("org1:mint", "org2:a", 5)
	late.Deadline = genesis.Time + 1 // several blocks are behind it
	status := b.submit(2, ledgerdv1.Level_LEVEL_DURABLE, b.signed(late))
	if status.GetReasonCode() != "deadline_passed" {
		t.Errorf("%v", status)
	}
}

// A shard whose blocks are past the deadline refuses, and the others release what they have set
// aside in time. A copy gets the same answer at every node, whichever way it goes.
func TestDeadlineInOneShard(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(1, 0, 0, 0)
	genesis.Version = ledger.DeadlineVersion
	b := newBookFrom(t, genesis)
	before := b.Shard(1).Node(0).Store().Head()
	crossing := b.orgs[1].Transfer("org1:mint", "org2:a", 5)
	crossing.Deadline = before.Time + 3
	for b.Shard(2).Node(0).Store().Head().Time < crossing.Deadline {
		b.settled(b.submit(2, ledgerdv1.Level_LEVEL_DURABLE,
			b.signed(b.orgs[2].Transfer("org2:mint", "org2:a", 1))), 2)
	}
	bundle := b.signed(crossing)
	if status := b.submit(1, ledgerdv1.Level_LEVEL_DURABLE, bundle); status.GetState() !=
		ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED ||
		status.GetReasonCode() != "deadline_passed" {
		t.Errorf("%v", status)
	}
	shown := b.everywhere(bundle.ID(0), "0 passed", "1 refused", "2 refused")
	if places := shown.GetPlaces(); places[1].GetVerdict() != "good" ||
		places[2].GetVerdict() != "deadline_passed" {
		t.Errorf("%v", places)
	}
	heights := b.heights()
	for door := range b.clients {
		if status := b.submit(door, ledgerdv1.Level_LEVEL_DURABLE,
			bundle); status.GetReasonCode() != "deadline_passed" {
			t.Errorf("a copy at shard %d: %v", door, status)
		}
	}
	if after := b.heights(); after != heights {
		t.Errorf("copies made blocks: %v, before %v", after, heights)
	}
}

func (b *book) heights() (heights [3]ledger.Height) {
	for shard := range heights {
		heights[shard] = b.Shard(ledger.ShardID(shard)).Node(0).Store().Head().Height
	}
	return heights
}

// A chain that does not take deadlines yet refuses them at admission, and says what to do.
func TestDeadlinesOfOldChains(t *testing.T) {
	t.Parallel()
	for version := range ledger.DeadlineVersion {
		genesis := ledgertest.ShardedGenesis(1, 0, 0, 0)
		genesis.Version = version
		b := newBookFrom(t, genesis)
		heights := b.heights()
		for _, to := range []ledger.AccountPath{"org2:a", "org1:a"} {
			transfer := b.orgs[1].Transfer("org1:mint", to, 5)
			transfer.Deadline = genesis.Time + 60_000
			for door := range b.clients {
				_, err := b.clients[door].Submit(b.context(), connect.NewRequest(
					&ledgerdv1.SubmitRequest{Bundle: api.BundleToProto(b.signed(transfer))}))
				codeIs(t, err, connect.CodeInvalidArgument)
				if !strings.Contains(err.Error(), "send the transactions without them, or let the "+
					"operators run `ledgerd cluster upgrade`") {
					t.Errorf("version %d: %v", version, err)
				}
			}
		}
		if after := b.heights(); after != heights {
			t.Errorf("version %d: blocks were made", version)
		}
		plain := b.orgs[1].Transfer("org1:mint", "org2:a", 5)
		b.settled(b.submit(0, ledgerdv1.Level_LEVEL_DURABLE, b.signed(plain)), 1)
	}
}
