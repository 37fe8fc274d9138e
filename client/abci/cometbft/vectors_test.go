package cometbft

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"testing"
	"time"

	abci "github.com/cometbft/cometbft/abci/types"
	"github.com/cometbft/cometbft/proto/tendermint/crypto"
	cmtproto "github.com/cometbft/cometbft/proto/tendermint/types"
)

var write = flag.Bool("write", false, "write the vectors that ledgerd's codec is tested with")

const vectorsPath = "../testdata/vectors.json"

// TestVectors writes one of each message as CometBFT encodes it, in its frame. The tests of
// ledgerd's codec read the file.
func TestVectors(t *testing.T) {
	moment := time.Date(2026, 1, 31, 12, 0, 0, 5e6, time.UTC)
	params := &cmtproto.ConsensusParams{Block: &cmtproto.BlockParams{MaxBytes: 1 << 20, MaxGas: -1},
		Evidence: &cmtproto.EvidenceParams{MaxAgeNumBlocks: 7, MaxAgeDuration: 48*time.Hour + 5,
			MaxBytes: 9},
		Validator: &cmtproto.ValidatorParams{PubKeyTypes: []string{"ed25519", "secp256k1"}},
		Version:   &cmtproto.VersionParams{App: 3}, Abci: &cmtproto.ABCIParams{}}
	validators := []abci.ValidatorUpdate{
		{PubKey: crypto.PublicKey{Sum: &crypto.PublicKey_Ed25519{Ed25519: bytes.Repeat([]byte{7},
			32)}}, Power: 10},
		{PubKey: crypto.PublicKey{Sum: &crypto.PublicKey_Secp256K1{Secp256K1: bytes.Repeat(
			[]byte{8}, 33)}}}}
	events := []abci.Event{{Type: "app", Attributes: []abci.EventAttribute{{Key: "k", Value: "v",
		Index: true}, {Key: "other"}}}, {Type: "none"}}
	txs := [][]byte{[]byte("a=b"), {}, []byte("c=d")}
	hash := bytes.Repeat([]byte{9}, 32)
	messages := map[string]interface {
		Marshal() ([]byte, error)
		Size() int
		MarshalTo([]byte) (int, error)
		Reset()
		String() string
		ProtoMessage()
	}{
		"flush": abci.ToRequestFlush(),
		"info": abci.ToRequestInfo(&abci.RequestInfo{Version: "0.38.0-ledgerd", BlockVersion: 11,
			P2PVersion: 8, AbciVersion: "2.0.0"}),
		"init": abci.ToRequestInitChain(&abci.RequestInitChain{Time: moment, ChainId: "kv",
			ConsensusParams: params, Validators: validators, AppStateBytes: []byte(`{"a":1}`),
			InitialHeight: 5}),
		"query": abci.ToRequestQuery(&abci.RequestQuery{Data: []byte("k"), Path: "/store",
			Height: 7, Prove: true}),
		"check":  abci.ToRequestCheckTx(&abci.RequestCheckTx{Tx: []byte("a=b")}),
		"commit": abci.ToRequestCommit(),
		"prepare": abci.ToRequestPrepareProposal(&abci.RequestPrepareProposal{MaxTxBytes: 1000,
			Txs: txs, Height: 6, Time: moment}),
		"process": abci.ToRequestProcessProposal(&abci.RequestProcessProposal{Txs: txs, Hash: hash,
			Height: 6, Time: moment}),
		"final": abci.ToRequestFinalizeBlock(&abci.RequestFinalizeBlock{Txs: txs, Hash: hash,
			Height: 6, Time: moment}),
		"exception": abci.ToResponseException("it is broken"),
		"info answer": abci.ToResponseInfo(&abci.ResponseInfo{Data: "d", Version: "v",
			AppVersion: 3, LastBlockHeight: 8, LastBlockAppHash: hash}),
		"init answer": abci.ToResponseInitChain(&abci.ResponseInitChain{ConsensusParams: params,
			Validators: validators, AppHash: hash}),
		"query answer": abci.ToResponseQuery(&abci.ResponseQuery{Code: 4, Log: "l", Info: "i",
			Index: -1, Key: []byte("k"), Value: []byte("v"), Height: 8, Codespace: "c",
			ProofOps: &crypto.ProofOps{Ops: []crypto.ProofOp{{Type: "t", Key: []byte("k"),
				Data: []byte("d")}}}}),
		"check answer": abci.ToResponseCheckTx(&abci.ResponseCheckTx{Code: 2, Data: []byte("d"),
			Log: "l", Info: "i", GasWanted: 1, GasUsed: -2, Events: events, Codespace: "c"}),
		"commit answer": abci.ToResponseCommit(&abci.ResponseCommit{RetainHeight: 3}),
		"prepare answer": abci.ToResponsePrepareProposal(&abci.ResponsePrepareProposal{
			Txs: txs}),
		"process answer": abci.ToResponseProcessProposal(&abci.ResponseProcessProposal{
			Status: abci.ResponseProcessProposal_REJECT}),
		"final answer": abci.ToResponseFinalizeBlock(&abci.ResponseFinalizeBlock{Events: events,
			TxResults: []*abci.ExecTxResult{{Code: 1, Data: []byte("d"), Log: "l", Info: "i",
				GasWanted: 5, GasUsed: 6, Events: events, Codespace: "c"}, {}},
			ValidatorUpdates: validators, ConsensusParamUpdates: params, AppHash: hash}),
	}
	vectors := make(map[string]string)
	for name, each := range messages {
		var frame bytes.Buffer
		if err := abci.WriteMessage(each, &frame); err != nil {
			t.Fatal(err)
		}
		vectors[name] = hex.EncodeToString(frame.Bytes())
	}
	text, err := json.MarshalIndent(vectors, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	if *write {
		if err := os.MkdirAll("../testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(vectorsPath, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(vectorsPath)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(kept, text) {
		t.Fatalf("%s differs: run the test again with -write", vectorsPath)
	}
}
