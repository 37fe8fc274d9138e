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
