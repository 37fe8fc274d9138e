package api_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// verifyLikeBrowser verifies a proof with SHA-256 only, as a browser does. It recomputes everything
// from the bytes of the answer.
func verifyLikeBrowser(proof *ledgerdv1.Proof, id []byte, blockHash []byte) error {
	hash := func(parts ...[]byte) []byte {
		sum := sha256.Sum256(bytes.Join(parts, nil))
		return sum[:]
	}
	if !bytes.Equal(hash(proof.IdPrefix, proof.CanonicalTransaction), id) ||
		!bytes.Equal(proof.TransactionId, id) {
		return fmt.Errorf("the transaction has another id")
	}
	if !bytes.HasPrefix(proof.LeafData, id) {
		return fmt.Errorf("the leaf is another transaction's")
	}
	node := hash([]byte{0}, proof.LeafData)
	for _, step := range proof.Path {
		if step.SiblingIsLeft {
			node = hash([]byte{1}, step.Sibling, node)
		} else {
			node = hash([]byte{1}, node, step.Sibling)
		}
	}
	header := proof.Header.Canonical
	if !bytes.Equal(node, proof.TransactionsRoot) ||
		!bytes.Equal(header[proof.RootOffset:proof.RootOffset+32], node) {
		return fmt.Errorf("the path leads to another root")
	}
	if !bytes.Equal(hash(proof.HashPrefix, header), blockHash) ||
		!bytes.Equal(proof.Header.Hash, blockHash) {
		return fmt.Errorf("the header has another hash")
	}
	return nil
}

func TestProofs(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	for size := range 20 {
		transactions := make([]ledger.Transaction, size+1)
		for i := range transactions {
			transactions[i] = transfer("bank:mint", "bank:a", int64(i+1))
		}
		ids := b.done(transactions...)
		block, err := b.client.GetBlock(b.context(),
			connect.NewRequest(&ledgerdv1.GetBlockRequest{
				Block: &ledgerdv1.GetBlockRequest_Head{Head: true}}))
		must(t, err)
		hash := block.Msg.Block.Header.Hash
		for place, id := range ids {
			answer, err := b.client.GetProof(b.context(),
				connect.NewRequest(&ledgerdv1.GetProofRequest{Id: id[:]}))
			must(t, err)
			proof := answer.Msg.Proof
			if err := verifyLikeBrowser(proof, id[:], hash); err != nil {
				t.Fatalf("transaction %d of %d: %v", place, len(ids), err)
			}
			encoded, err := ledger.DecodeProof(proof.Encoded)
			must(t, err)
			must(t, ledger.VerifyProof(encoded))
			// Changed proofs are detected.
			if len(proof.Path) > 0 {
				proof.Path[0].SiblingIsLeft = !proof.Path[0].SiblingIsLeft
				if verifyLikeBrowser(proof, id[:], hash) == nil {
					t.Fatal("a proof with a turned step was believed")
				}
				proof.Path[0].SiblingIsLeft = !proof.Path[0].SiblingIsLeft
			}
			proof.CanonicalTransaction[40] ^= 1
			if verifyLikeBrowser(proof, id[:], hash) == nil {
				t.Fatal("a proof of another transaction was believed")
			}
		}
	}
	_, err := b.client.GetProof(b.context(),
		connect.NewRequest(&ledgerdv1.GetProofRequest{IdHex: strings.Repeat("ab", 32)}))
	codeIs(t, err, connect.CodeNotFound)
}

// In a block by bundle, the answer's path leads from the bundle's leaf, and the encoded proof leads
// to that. The id of a packed transfer is no hash of bytes.
func TestProofsByBundle(t *testing.T) {
	t.Parallel()
	genesis := *ledgertest.OperatedGenesis(1)
	genesis.Version = ledger.PackedVersion
	b := newBank(t, apitest.Options{Genesis: genesis}, api.Options{})
	for _, packed := range []bool{true, false} {
		sign := b.sign
		if packed {
			sign = b.packed
		}
		transactions := make([]ledger.Transaction, 5)
		for i := range transactions {
			transactions[i] = transfer("bank:mint", "bank:a", int64(i+1))
		}
		bundle := sign(transactions...)
		b.submit(ledgerdv1.Level_LEVEL_DURABLE, bundle)
		for place, id := range bundle.IDs() {
			answer, err := b.client.GetProof(b.context(),
				connect.NewRequest(&ledgerdv1.GetProofRequest{Id: id[:]}))
			must(t, err)
			proof := answer.Msg.Proof
			encoded, err := ledger.DecodeProof(proof.Encoded)
			must(t, err)
			must(t, ledger.VerifyProof(encoded))
			leaf := encoded.BundleLeaf()
			if encoded.Placing == nil || !bytes.Equal(proof.LeafData, leaf) ||
				proof.LeafIndex != 0 || proof.TreeSize != 1 || len(proof.Path) != 0 {
				t.Fatalf("transfer %d, packed %t: the answer has another leaf", place, packed)
			}
			root := sha256.Sum256(append([]byte{0}, leaf...))
			header := proof.Header.Canonical[proof.RootOffset:][:len(root)]
			if !bytes.Equal(root[:], proof.TransactionsRoot) || !bytes.Equal(root[:], header) {
				t.Fatalf("transfer %d, packed %t: the leaf leads to another root", place, packed)
			}
			hash := sha256.Sum256(slices.Concat(proof.IdPrefix, proof.CanonicalTransaction))
			if hashed := bytes.Equal(hash[:], id[:]); hashed == packed ||
				packed != (len(proof.IdPrefix) == 0) {
				t.Fatalf("transfer %d, packed %t: its id is a hash: %t, with prefix %q", place,
					packed, hashed, proof.IdPrefix)
			}
		}
	}
}

// A transaction that moves nothing says what it opens, in the summary of its block.
func TestSummaryOfOpenings(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	b.done(ledger.Transaction{Openings: []ledger.Opening{{Account: "bank:c"}, {Account: "bank:d"}}})
	b.done(transfer("bank:mint", "bank:a", 1))
	for height, want := range [][2]uint32{1: {1, 3}, 2: {0, 2}, 3: {0, 0}} {
		if height == 0 {
			continue
		}
		block, err := b.client.GetBlock(b.context(),
			connect.NewRequest(&ledgerdv1.GetBlockRequest{
				Block: &ledgerdv1.GetBlockRequest_Height{Height: uint64(height)}}))
		must(t, err)
		entry := block.Msg.Block.Transactions[0]
		if got := [2]uint32{entry.OrganisationCount, entry.AccountCount}; got != want {
			t.Errorf("block %d registers and opens %v, want %v", height, got, want)
		}
	}
}

// all reads a list's pages and checks that none is larger than requested.
func all[Item any](t *testing.T, size int, ask func(token string) ([]Item, string)) (items []Item) {
	t.Helper()
	for token := ""; ; {
		page, next := ask(token)
		if len(page) > size || (len(page) < size && next != "") {
			t.Fatalf("a page of %d where %d were asked, next %q", len(page), size, next)
		}
		items = append(items, page...)
		if token = next; token == "" {
			return items
		}
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	var opening ledger.Transaction
	for i := range 25 {
		opening.Openings = append(opening.Openings,
			ledger.Opening{Account: ledger.AccountPath(fmt.Sprintf("bank:c%02d", i))})
	}
	b.done(opening)
	var inBlock []ledger.Transaction
	for i := range 10 {
		inBlock = append(inBlock, transfer("bank:mint", "bank:a", int64(i+1)))
	}
	for range 3 {
		b.done(slices.Clone(inBlock)...)
	}
	b.done(transfer("bank:a", "bank:b", 1_000)) // fails
	const head = 6
	for _, size := range []int{1, 7, 10, 1_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			accounts := all(t, size, func(token string) ([]*ledgerdv1.Account, string) {
				answer, err := b.client.ListAccounts(b.context(),
					connect.NewRequest(&ledgerdv1.ListAccountsRequest{Prefix: "bank:c",
						PageSize: uint32(size), PageToken: token}))
				must(t, err)
				return answer.Msg.Accounts, answer.Msg.NextPageToken
			})
			if len(accounts) != 25 || accounts[0].Account != "bank:c00" ||
				accounts[24].Account != "bank:c24" {
				t.Fatalf("%d accounts", len(accounts))
			}
			exact := all(t, size, func(token string) ([]*ledgerdv1.Account, string) {
				answer, err := b.client.ListAccounts(b.context(),
					connect.NewRequest(&ledgerdv1.ListAccountsRequest{Prefix: "bank:a",
						PageSize: uint32(size), PageToken: token}))
				must(t, err)
				return answer.Msg.Accounts, answer.Msg.NextPageToken
			})
			if len(exact) != 1 || exact[0].Alias != "Anna" || exact[0].Balances[0].Amount != "165" {
				t.Fatalf("%v", exact)
			}
			for _, ascending := range []bool{false, true} {
				blocks := all(t, size, func(token string) ([]*ledgerdv1.BlockHeader, string) {
					answer, err := b.client.ListBlocks(b.context(),
						connect.NewRequest(&ledgerdv1.ListBlocksRequest{Ascending: ascending,
							PageSize: uint32(size), PageToken: token}))
					must(t, err)
					return answer.Msg.Blocks, answer.Msg.NextPageToken
				})
				if ascending {
					slices.Reverse(blocks)
				}
				if len(blocks) != head || blocks[0].Height != head || blocks[0].FailedCount != 1 ||
					blocks[1].TransactionCount != 10 || blocks[1].FailedCount != 0 ||
					blocks[1].SizeBytes == 0 {
					t.Fatalf("%v", blocks)
				}
				for i := range blocks[:head-1] {
					if !bytes.Equal(blocks[i].Previous, blocks[i+1].Hash) {
						t.Fatal("the blocks do not follow each other")
					}
				}
				history := all(t, size, func(token string) ([]*ledgerdv1.HistoryEntry, string) {
					answer, err := b.client.ListHistory(b.context(),
						connect.NewRequest(&ledgerdv1.ListHistoryRequest{Account: "bank:a",
							Ascending: ascending, PageSize: uint32(size), PageToken: token}))
					must(t, err)
					return answer.Msg.Entries, answer.Msg.NextPageToken
				})
				if ascending {
					slices.Reverse(history)
				}
				if len(history) != 30 || history[0].Changes[0].Amount != "10" ||
					history[29].Changes[0].Amount != "1" || history[0].Height != head-1 {
					t.Fatalf("%d entries, %v", len(history), history[0])
				}
			}
			transactions := all(t, size, func(token string) ([]*ledgerdv1.TransactionSummary,
				string) {
				answer, err := b.client.GetBlock(b.context(),
					connect.NewRequest(&ledgerdv1.GetBlockRequest{
						Block: &ledgerdv1.GetBlockRequest_Height{Height: 4}, PageSize: uint32(size),
						PageToken: token,
					}))
				must(t, err)
				return answer.Msg.Block.Transactions, answer.Msg.NextPageToken
			})
			if len(transactions) != 10 || transactions[9].Postings[1].Amount != "10" ||
				transactions[3].Status.Index != 3 {
				t.Fatalf("%v", transactions)
			}
		})
	}
	organisations, err := b.client.ListOrganisations(b.context(),
		connect.NewRequest(&ledgerdv1.ListOrganisationsRequest{}))
	must(t, err)
	if len(organisations.Msg.Organisations) != 1 ||
		organisations.Msg.Organisations[0].Name != "bank" || organisations.Msg.NextPageToken != "" {
		t.Fatalf("%v", organisations.Msg)
	}
	nonce, err := b.client.GetNonce(b.context(),
		connect.NewRequest(&ledgerdv1.GetNonceRequest{Organisation: "bank"}))
	must(t, err)
	if nonce.Msg.NextSequence != b.next { // the last one failed, so its number is free
		t.Fatalf("next sequence %d, want %d", nonce.Msg.NextSequence, b.next)
	}
	use, err := b.client.GetUse(b.context(),
		connect.NewRequest(&ledgerdv1.GetUseRequest{Organisation: "bank"}))
	must(t, err)
	if got := use.Msg.GetUse(); got.GetStreams() != 1 || got.GetAccounts() == 0 ||
		got.GetAssets() == 0 || use.Msg.GetQuotas().GetAccounts() != 0 {
		t.Fatalf("%v", use.Msg)
	}
}

// Every read says what is wrong with a bad request.
func TestBadQuestions(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	ctx := b.context()
	questions := map[string]func() error{
		"page size": func() error {
			_, err := b.client.ListBlocks(ctx,
				connect.NewRequest(&ledgerdv1.ListBlocksRequest{PageSize: 1_001}))
			return err
		},
		"page token of blocks": func() error {
			_, err := b.client.ListBlocks(ctx,
				connect.NewRequest(&ledgerdv1.ListBlocksRequest{PageToken: "h1"}))
			return err
		},
		"page token of a block": func() error {
			_, err := b.client.GetBlock(ctx,
				connect.NewRequest(&ledgerdv1.GetBlockRequest{PageToken: "t1.zzz"}))
			return err
		},
		"page token of accounts": func() error {
			_, err := b.client.ListAccounts(ctx,
				connect.NewRequest(&ledgerdv1.ListAccountsRequest{Prefix: "bank:",
					PageToken: "other:a"}))
			return err
		},
		"page token of organisations": func() error {
			_, err := b.client.ListOrganisations(ctx,
				connect.NewRequest(&ledgerdv1.ListOrganisationsRequest{PageToken: ":"}))
			return err
		},
		"page token of a history": func() error {
			_, err := b.client.ListHistory(ctx,
				connect.NewRequest(&ledgerdv1.ListHistoryRequest{Account: "bank:a",
					PageToken: "h!"}))
			return err
		},
		"no block": func() error {
			_, err := b.client.GetBlock(ctx, connect.NewRequest(&ledgerdv1.GetBlockRequest{}))
			return err
		},
		"short hash": func() error {
			_, err := b.client.GetBlock(ctx,
				connect.NewRequest(&ledgerdv1.GetBlockRequest{
					Block: &ledgerdv1.GetBlockRequest_Hash{Hash: []byte{1}}}))
			return err
		},
		"both ids": func() error {
			_, err := b.client.GetTransaction(ctx,
				connect.NewRequest(&ledgerdv1.GetTransactionRequest{Id: make([]byte, 32),
					IdHex: strings.Repeat("0", 64)}))
			return err
		},
		"account": func() error {
			_, err := b.client.GetAccount(ctx,
				connect.NewRequest(&ledgerdv1.GetAccountRequest{Account: "bank"}))
			return err
		},
		"record": func() error {
			_, err := b.client.GetRecord(ctx,
				connect.NewRequest(&ledgerdv1.GetRecordRequest{Key: ""}))
			return err
		},
		"organisation": func() error {
			_, err := b.client.GetOrganisation(ctx,
				connect.NewRequest(&ledgerdv1.GetOrganisationRequest{Name: "a b"}))
			return err
		},
		"nonce": func() error {
			_, err := b.client.GetNonce(ctx,
				connect.NewRequest(&ledgerdv1.GetNonceRequest{Organisation: "no name"}))
			return err
		},
		"use": func() error {
			_, err := b.client.GetUse(ctx,
				connect.NewRequest(&ledgerdv1.GetUseRequest{Organisation: "no name"}))
			return err
		},
		"level": func() error {
			_, err := b.client.WaitTransaction(ctx,
				connect.NewRequest(&ledgerdv1.WaitTransactionRequest{Id: make([]byte, 32),
					Wait: 77}))
			return err
		},
		"empty search": func() error {
			_, err := b.client.Search(ctx,
				connect.NewRequest(&ledgerdv1.SearchRequest{Query: "  "}))
			return err
		},
	}
	for name, ask := range questions {
		if err := ask(); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	missing := map[string]func() error{
		"height": func() error {
			_, err := b.client.GetBlock(ctx,
				connect.NewRequest(&ledgerdv1.GetBlockRequest{
					Block: &ledgerdv1.GetBlockRequest_Height{Height: 99}}))
			return err
		},
		"hash": func() error {
			_, err := b.client.GetBlock(ctx,
				connect.NewRequest(&ledgerdv1.GetBlockRequest{
					Block: &ledgerdv1.GetBlockRequest_HashHex{HashHex: strings.Repeat("0", 64)}}))
			return err
		},
		"hash of a transaction": func() error {
			answer, err := b.client.ListHistory(ctx,
				connect.NewRequest(&ledgerdv1.ListHistoryRequest{Account: "bank:a"}))
			must(t, err)
			if len(answer.Msg.Entries) != 0 {
				t.Error("a history of an account that nothing touched")
			}
			id := b.done(transfer("bank:mint", "bank:a", 1))[0]
			_, err = b.client.GetBlock(ctx, connect.NewRequest(
				&ledgerdv1.GetBlockRequest{Block: &ledgerdv1.GetBlockRequest_Hash{Hash: id[:]}}))
			return err
		},
		"account": func() error {
			_, err := b.client.GetAccount(ctx,
				connect.NewRequest(&ledgerdv1.GetAccountRequest{Account: "bank:nobody"}))
			return err
		},
		"history": func() error {
			_, err := b.client.ListHistory(ctx,
				connect.NewRequest(&ledgerdv1.ListHistoryRequest{Account: "bank:nobody"}))
			return err
		},
		"record": func() error {
			_, err := b.client.GetRecord(ctx,
				connect.NewRequest(&ledgerdv1.GetRecordRequest{Key: "bank:nothing"}))
			return err
		},
		"organisation": func() error {
			_, err := b.client.GetOrganisation(ctx,
				connect.NewRequest(&ledgerdv1.GetOrganisationRequest{Name: "nobody"}))
			return err
		},
	}
	for name, ask := range missing {
		if err := ask(); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSearch(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	b.done(ledger.Transaction{Openings: []ledger.Opening{
		{Account: "bank:12cbQLTFMXRnSzktFkuoG3eHoMeFtpTu3S"}, {Account: "bank:2"}}})
	id := b.done(transfer("bank:mint", "bank:a", 1))[0]
	block := b.cluster.Node(0).Store().Head().Hash
	cases := []struct{ query, kind, key string }{
		{"3", "block", "3"},
		{" #2 ", "block", "2"},
		{block.String(), "block", "3"},
		{"0x" + strings.ToUpper(id.String()), "transaction", id.String()},
		{"bank:a", "account", "bank:a"},
		{"bank", "organisation", "bank"},
		{"BA", "organisation", "bank"},
		{"12cbQLTFMXRnSzktFkuoG3eHoMeFtpTu3S", "account",
			"bank:12cbQLTFMXRnSzktFkuoG3eHoMeFtpTu3S"},
		{"12cbQ", "account", "bank:12cbQLTFMXRnSzktFkuoG3eHoMeFtpTu3S"},
		{"bank:1", "account", "bank:12cbQLTFMXRnSzktFkuoG3eHoMeFtpTu3S"},
		{"2", "block", "2"},
		{"99999", "", ""},
		{"no such thing", "", ""},
		{strings.Repeat("f", 64), "", ""},
	}
	for _, c := range cases {
		answer, err := b.client.Search(b.context(),
			connect.NewRequest(&ledgerdv1.SearchRequest{Query: c.query}))
		must(t, err)
		hits := answer.Msg.Hits
		switch {
		case c.kind == "" && len(hits) > 0:
			t.Errorf("%q finds %v", c.query, hits)
		case c.kind != "" && (len(hits) == 0 || hits[0].Kind != c.kind || hits[0].Key != c.key):
			t.Errorf("%q finds %v, want %s %s first", c.query, hits, c.kind, c.key)
		}
	}
}
