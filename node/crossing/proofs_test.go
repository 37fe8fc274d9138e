package crossing

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
	"github.com/ledgerd/ledgerd/node/calls"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// vouchedGenesis returns the genesis of a shard in a book of two with three members each.
func vouchedGenesis(t *testing.T, shard ledger.ShardID) *ledger.Genesis {
	t.Helper()
	book := ledgertest.ShardedGenesis(3, 0, 0)
	book.VouchedCrossings = true
	genesis, err := book.ForShard(shard)
	if err != nil {
		t.Fatal(err)
	}
	return genesis
}

// certify returns the certificate of a block. The signers are members of shard 1, by the number of
// ledgertest.Member; index i has number 3+i.
func certify(genesis *ledger.Genesis, epoch ledger.MembersEpoch, block *ledger.Block,
	signers ...int) *ledger.Certificate {
	var statements []ledger.Statement
	for _, i := range signers {
		statements = append(statements, ledger.SignStatement(
			ledgertest.Key(ledgertest.Member(i).Name), genesis.Hash(), ledger.MemberIndex(i-3),
			epoch, block.Header.Height, block.Hash))
	}
	c := ledger.Certify(statements)
	if block.MembershipChange() != nil {
		c.Change = block.Proof(0)
	}
	return c
}

// proofServer gives one answer to each request for a proof, or none.
type proofServer struct {
	ledgerdv1connect.UnimplementedLedgerServiceHandler
	answer *ledgerdv1.Proof
}

func (s *proofServer) GetProof(ctx context.Context,
	_ *connect.Request[ledgerdv1.GetProofRequest]) (*connect.Response[ledgerdv1.GetProofResponse],
	error) {
	if s.answer == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return connect.NewResponse(&ledgerdv1.GetProofResponse{Proof: s.answer}), nil
}

// proofScene is a chain of shard 1 with a join in block 1 and crossing transactions in block 2.
type proofScene struct {
	genesis      *ledger.Genesis
	join, judged *ledger.Block
	other        *ledger.Block // at height 2, too, with another result
}

func newProofScene(t *testing.T) *proofScene {
	genesis := vouchedGenesis(t, 1)
	client := ledgertest.NewClient(genesis, "acme")
	bundles := []*ledger.Bundle{
		client.Bundle(client.Transfer("acme:issuer", "globex:a", 1)),
		client.Bundle(client.Transfer("acme:issuer", "globex:a", 2)),
		client.Bundle(client.Transfer("acme:issuer", "globex:a", 3))}
	s := &proofScene{genesis: genesis, join: ledgertest.Block(genesis,
		ledgertest.NewOperator(genesis).Join(ledgertest.Member(6)))}
	block := func(codes ...ledger.Code) *ledger.Block {
		b := ledgertest.After(s.join, bundles...)
		for i, code := range codes {
			b.Unpacked[i].Result.Code = code
		}
		b.Complete(ledger.Hash{})
		return b
	}
	s.judged = block(ledger.SetAside, ledger.InsufficientFunds, ledger.Applied)
	s.other = block(ledger.InsufficientFunds, ledger.SetAside, ledger.Applied)
	return s
}

// proof is the proof of a transaction of a block that these members certified.
func (s *proofScene) proof(block *ledger.Block, at int, epoch ledger.MembersEpoch,
	signers ...int) *ledgerdv1.Proof {
	finality := &ledger.Finality{Certificate: certify(s.genesis, epoch, block, signers...)}
	if epoch > 0 {
		finality.Changes = []*ledger.Certificate{certify(s.genesis, 0, s.join, 3, 4)}
	}
	return &ledgerdv1.Proof{Encoded: block.Proof(at).Encode(), Finality: finality.Encode()}
}

func TestProvenVerdict(t *testing.T) {
	t.Parallel()
	s := newProofScene(t)
	own := s.proof(s.judged, 0, 1, 3, 4, 6)
	forged := s.judged.Proof(0)
	forged.Result.Code = ledger.InsufficientFunds
	for _, test := range []struct {
		name   string
		answer *ledgerdv1.Proof
		at     int // the transaction that is asked for
		want   error
		code   ledger.Code
	}{
		{"good", own, 0, nil, ledger.SetAside},
		{"bad", s.proof(s.judged, 1, 1, 3, 4, 6), 1, nil, ledger.InsufficientFunds},
		{"no verdict", s.proof(s.judged, 2, 1, 3, 4, 6), 2, errNoVerdict, 0},
		{"another result", &ledgerdv1.Proof{Encoded: forged.Encode(),
			Finality: own.GetFinality()}, 0, ledger.ErrProof, 0},
		{"another transaction", own, 1, ledger.ErrProof, 0},
		{"too few sign", s.proof(s.other, 0, 1, 3, 4), 0, ledger.ErrCertificate, 0},
		{"the members before sign", s.proof(s.other, 0, 0, 3), 0, ledger.ErrCertificate, 0},
		{"another block's certificate", &ledgerdv1.Proof{Encoded: s.other.Proof(0).Encode(),
			Finality: own.GetFinality()}, 0, ledger.ErrCertificate, 0},
		{"not certified", &ledgerdv1.Proof{Encoded: own.GetEncoded()}, 0, ledger.ErrCertificate, 0},
		{"no proof", &ledgerdv1.Proof{Finality: own.GetFinality()}, 0, ledger.ErrMalformed, 0},
		{"no finality", &ledgerdv1.Proof{Encoded: own.GetEncoded(), Finality: []byte{9}}, 0,
			ledger.ErrMalformed, 0},
		{"nothing", nil, 0, ledger.ErrCertificate, 0},
	} {
		id := s.judged.Entry(test.at).ID
		verdict, err := provenVerdict(test.answer, 1, id, s.genesis)
		if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
			t.Errorf("%s: %v", test.name, err)
		}
		want := ledger.Verdict{ID: id, Shard: 1, Result: ledger.Result{Code: test.code,
			Item: ledger.NoItem}}
		if err == nil && verdict != want {
			t.Errorf("%s: %+v", test.name, verdict)
		}
	}
	// Members of another shard certify nothing here.
	if _, err := provenVerdict(own, 0, s.judged.Entry(0).ID,
		vouchedGenesis(t, 0)); !errors.Is(err, ledger.ErrCertificate) {
		t.Errorf("with another shard's genesis: %v", err)
	}
}

// One member of the shard lies, one is silent. The proof of the third is found.
func TestProveDespiteLiars(t *testing.T) {
	t.Parallel()
	s, network := newProofScene(t), memory.NewNetwork()
	peers := make([]rdmanet.PeerID, 6)
	for i := range peers {
		var err error
		if peers[i], err = p2p.PeerID(ledgertest.Member(i).Key); err != nil {
			t.Fatal(err)
		}
	}
	b, err := newBook(Config{Dir: t.TempDir(), Genesis: vouchedGenesis(t, 0), Self: peers[0],
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	host := func(peer rdmanet.PeerID) rdmanet.Host {
		host, err := network.Host(peer)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			_ = host.Close(ctx)
		})
		return host
	}
	b.host = host(peers[0])
	id := s.judged.Entry(0).ID
	early, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.prove(early, 1, id); !errors.Is(err, context.Canceled) {
		t.Errorf("before Serve: %v", err)
	}
	servers := []*proofServer{{}, {answer: s.proof(s.other, 0, 1, 3, 4)},
		{answer: s.proof(s.judged, 0, 1, 3, 5, 6)}}
	for i, server := range servers {
		_, handler := ledgerdv1connect.NewLedgerServiceHandler(server)
		c, err := calls.New(calls.Config{Host: host(peers[3+i]), Serve: handler,
			Logger: slog.New(slog.DiscardHandler), Candidates: b.directory.Candidates,
			Find: func(peer rdmanet.PeerID) (ledger.ShardID, bool) {
				return ledger.ShardID(slices.Index(peers, peer) / 3), true
			}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
	}
	if err := b.Serve(http.NotFoundHandler()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	for range 3 { // each time another member is asked first
		if verdict, err := b.prove(t.Context(), 1, id); err != nil || !verdict.Good() ||
			verdict.ID != id || verdict.Shard != 1 {
			t.Errorf("%+v, %v", verdict, err)
		}
	}
	if _, err := b.prove(t.Context(), 7, id); !errors.Is(err, ledger.ErrGenesis) {
		t.Errorf("a shard that there is not: %v", err)
	}
}
