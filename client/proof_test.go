package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
)

// crooked is a node that changes the answers of an honest one.
type crooked struct {
	ledgerdv1connect.UnimplementedLedgerServiceHandler
	honest *Client
	proof  func(*ledgerdv1.Proof)
	block  func(*ledgerdv1.BlockHeader)
	behind int // how many calls it answers as if it had yet to fetch the block
}

func (c *crooked) GetProof(ctx context.Context, request *connect.Request[ledgerdv1.GetProofRequest],
) (*connect.Response[ledgerdv1.GetProofResponse], error) {
	proof, err := c.honest.Proof(ctx, ledger.Hash(request.Msg.GetId()))
	if err == nil && c.proof != nil {
		c.proof(proof)
	}
	return connect.NewResponse(&ledgerdv1.GetProofResponse{Proof: proof}), err
}

func (c *crooked) GetBlock(ctx context.Context, request *connect.Request[ledgerdv1.GetBlockRequest],
) (*connect.Response[ledgerdv1.GetBlockResponse], error) {
	if c.behind--; c.behind >= 0 {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("there is no such block"))
	}
	answer, err := c.honest.Block(ctx, request.Msg)
	if err == nil && c.block != nil {
		c.block(answer.GetBlock().GetHeader())
	}
	return connect.NewResponse(answer), err
}

func (c *crooked) serve(t *testing.T) (url string) {
	_, handler := ledgerdv1connect.NewLedgerServiceHandler(c)
	server := httptest.NewServer(http.Handler(handler))
	t.Cleanup(server.Close)
	return server.URL
}

func TestVerifiedProof(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{Nodes: 2})
	door := apitest.Serve(t, cluster.Node(0), api.Options{}).URL
	honest := newTestClient(t, door, apitest.Serve(t, cluster.Node(1), api.Options{}).URL)
	key := testKey(t, "acme")
	beginBank(t, honest, key)
	var ids []ledger.Hash
	for range 2 {
		status, err := honest.Post(testContext(t), []Key{key},
			transfer("acme:mint", "acme:a", 1), ledgerdv1.Level_LEVEL_DURABLE)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, ledger.Hash(status.GetId()))
	}
	other, err := honest.Proof(testContext(t), ids[1])
	if err != nil {
		t.Fatal(err)
	}

	for _, test := range []struct {
		name  string
		node  crooked
		first bool   // whether the crooked node is asked for the proof
		fails string // part of the error; "" for none
		wrong bool   // whether the error matches ledger.ErrProof
	}{
		{name: "all nodes have the block", first: true},
		{name: "a node fetches the block meanwhile", node: crooked{behind: 3}},
		{name: "a node does not get the block", node: crooked{behind: 1 << 20},
			fails: "there is no such block"},
		{name: "a proof that is cut", first: true, node: crooked{proof: func(p *ledgerdv1.Proof) {
			p.Encoded = p.Encoded[:len(p.Encoded)-1]
		}}, fails: "cannot be read, do not trust this node", wrong: true},
		{name: "a forged signature", first: true, node: crooked{proof: func(p *ledgerdv1.Proof) {
			p.Encoded[len(p.Encoded)-1] ^= 1
		}}, fails: "does not hold, do not trust this node", wrong: true},
		{name: "the proof of another transaction", first: true, node: crooked{
			proof: func(p *ledgerdv1.Proof) { p.Encoded = other.GetEncoded() },
		}, fails: "is for another transaction, do not trust this node", wrong: true},
		{name: "another block", node: crooked{block: func(h *ledgerdv1.BlockHeader) {
			h.Hash[0] ^= 1
		}}, fails: "another block at height", wrong: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.node.honest = honest
			address := test.node.serve(t)
			urls := []string{door, address}
			if test.first {
				urls = []string{address, door}
			}
			c, err := New(urls, Options{Backoff: time.Millisecond, Tries: 5,
				WaitTime: 500 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			proof, err := c.VerifiedProof(testContext(t), ids[0])
			if test.fails == "" {
				if err != nil || proof.ID != ids[0] || ledger.VerifyProof(proof) != nil {
					t.Fatalf("%+v, %v", proof, err)
				}
				return
			}
			if err == nil || proof != nil || !strings.Contains(err.Error(), test.fails) ||
				!strings.Contains(err.Error(), address) {
				t.Fatalf("got %v, %v, want an error of %s with %q", proof, err, address, test.fails)
			}
			if errors.Is(err, ledger.ErrProof) != test.wrong {
				t.Errorf("%v: matches ledger.ErrProof: %v", err, !test.wrong)
			}
		})
	}

	if _, err := honest.VerifiedProof(testContext(t), ledger.Hash{1}); CodeOf(err) !=
		connect.CodeNotFound {
		t.Errorf("an unknown transaction: %v", err)
	}
	if _, err := newTestClient(t, door, "127.0.0.1:1").VerifiedProof(testContext(t),
		ids[0]); !errors.Is(err, ErrUnreachable) {
		t.Errorf("a node that is gone: %v", err)
	}
}

// TestCertifiedProof gives a client the genesis and one node, which lies in some way.
func TestCertifiedProof(t *testing.T) {
	t.Parallel()
	cluster := apitest.NewCluster(t, apitest.Options{Nodes: 3})
	honest := newTestClient(t, apitest.Serve(t, cluster.Node(0), api.Options{}).URL)
	key := testKey(t, "acme")
	beginBank(t, honest, key)
	status, err := honest.Post(testContext(t), []Key{key}, transfer("acme:mint", "acme:a", 1),
		ledgerdv1.Level_LEVEL_DURABLE)
	if err != nil {
		t.Fatal(err)
	}
	id, another := ledger.Hash(status.GetId()), *cluster.Genesis()
	another.Chain = "another"
	for _, test := range []struct {
		name    string
		genesis *ledger.Genesis
		lie     func(*ledgerdv1.Proof)
		want    error
	}{
		{name: "an honest node", genesis: cluster.Genesis()},
		{"another genesis", &another, nil, ledger.ErrCertificate},
		{"no certificate", cluster.Genesis(), func(p *ledgerdv1.Proof) { p.Finality = nil },
			ErrUncertified},
		{"a forged signature", cluster.Genesis(), func(p *ledgerdv1.Proof) {
			p.Finality[len(p.Finality)-2] ^= 1
		}, ledger.ErrCertificate},
		{"nonsense", cluster.Genesis(), func(p *ledgerdv1.Proof) {
			p.Finality = []byte("nonsense")
		}, ledger.ErrMalformed},
		{"a shard that is none", cluster.Genesis(), func(p *ledgerdv1.Proof) { p.Shard = 7 },
			ledger.ErrGenesis},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			node := crooked{honest: honest, proof: test.lie}
			c, err := New([]string{node.serve(t)}, Options{Backoff: time.Millisecond,
				WaitTime: 300 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			proof, err := c.CertifiedProof(testContext(t), id, test.genesis)
			if test.want == nil {
				if err != nil || ledger.VerifyCertifiedProof(proof, cluster.Genesis()) != nil {
					t.Fatalf("%+v, %v", proof, err)
				}
				return
			}
			if proof != nil || !errors.Is(err, test.want) {
				t.Fatalf("%+v, %v", proof, err)
			}
			if errors.Is(err, ledger.ErrProof) == errors.Is(err, ErrUncertified) {
				t.Errorf("%v: only a wrong answer is an ErrProof", err)
			}
		})
	}
}
