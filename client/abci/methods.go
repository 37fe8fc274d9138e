package abci

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// method is a method of the RPC.
type method struct {
	params []param
	serve  func(s *server, ctx context.Context, given params) (any, error)
	// atOnce says that it waits for nothing.
	atOnce bool
}

var transactionParam = []param{{"tx", kindBytes}}

// methods are those of CometBFT's RPC that the adapter has.
var methods map[string]method

func init() {
	methods = map[string]method{
		"health": {nil, func(*server, context.Context, params) (any, error) {
			return struct{}{}, nil
		}, true},
		"status":    {nil, (*server).status, true},
		"abci_info": {nil, (*server).info, false},
		"abci_query": {[]param{{"path", kindText}, {"data", kindHex}, {"height", kindNumber},
			{"prove", kindTruth}}, (*server).query, false},
		"check_tx":            {transactionParam, (*server).check, false},
		"broadcast_tx_async":  {transactionParam, (*server).broadcastAsync, false},
		"broadcast_tx_sync":   {transactionParam, (*server).broadcastSync, false},
		"broadcast_tx_commit": {transactionParam, (*server).broadcastCommit, false},
		"num_unconfirmed_txs": {nil, (*server).unconfirmed, true},
		"block_results":       {[]param{{"height", kindNumber}}, (*server).blockResults, false},
		"tx": {[]param{{"hash", kindBytes}, {"prove", kindTruth}},
			(*server).transaction, false},
	}
}

// hexBytes are bytes that CometBFT writes in hex, in capitals.
type hexBytes []byte

// MarshalText writes the bytes.
func (b hexBytes) MarshalText() ([]byte, error) {
	return []byte(strings.ToUpper(hex.EncodeToString(b))), nil
}

// wholeEvents returns events without absent attributes: CometBFT's clients take an array.
func wholeEvents(events []Event) []Event {
	whole := make([]Event, 0, len(events))
	for _, each := range events {
		if each.Attributes == nil {
			each.Attributes = []Attribute{}
		}
		whole = append(whole, each)
	}
	return whole
}

func whole(result TxResult) TxResult {
	result.Events = wholeEvents(result.Events)
	return result
}

func (s *server) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, time.Duration(s.options.Config.Timing.Check))
}

// statusAnswer is the answer of status.
type statusAnswer struct {
	Node struct {
		Protocol struct {
			Peers uint64 `json:"p2p,string"`
			Block uint64 `json:"block,string"`
			App   uint64 `json:"app,string"`
		} `json:"protocol_version"`
		ID       string   `json:"id"`
		Listen   string   `json:"listen_addr"`
		Network  string   `json:"network"`
		Version  string   `json:"version"`
		Channels hexBytes `json:"channels"`
		Moniker  string   `json:"moniker"`
		Other    struct {
			Index   string `json:"tx_index"`
			Address string `json:"rpc_address"`
		} `json:"other"`
	} `json:"node_info"`
	Sync struct {
		Hash            hexBytes  `json:"latest_block_hash"`
		AppHash         hexBytes  `json:"latest_app_hash"`
		Height          int64     `json:"latest_block_height,string"`
		Time            time.Time `json:"latest_block_time"`
		EarliestHash    hexBytes  `json:"earliest_block_hash"`
		EarliestAppHash hexBytes  `json:"earliest_app_hash"`
		EarliestHeight  int64     `json:"earliest_block_height,string"`
		EarliestTime    time.Time `json:"earliest_block_time"`
		CatchingUp      bool      `json:"catching_up"`
	} `json:"sync_info"`
	Validator struct {
		Address hexBytes `json:"address"`
		Key     any      `json:"pub_key"`
		Power   int64    `json:"voting_power,string"`
	} `json:"validator_info"`
	// Feed is the adapter's own: CometBFT's clients pass over it.
	Feed Feed `json:"feed"`
}

func (s *server) status(context.Context, params) (any, error) {
	var answer statusAnswer
	answer.Node.Protocol.Peers, answer.Node.Protocol.Block = asked.peerVersion, asked.blockVersion
	answer.Node.Network, answer.Node.Version = s.options.Config.Genesis.Chain, asked.version
	answer.Node.Moniker = "ledgerd"
	answer.Node.Other.Index = "off"
	first, last, durable := s.results.span()
	if last == nil {
		first, last = s.results.beginning(), s.results.beginning()
	}
	answer.Feed = *s.teller.feed.Load()
	answer.Sync.CatchingUp = true
	if last != nil {
		answer.Sync.Hash, answer.Sync.AppHash = last.hash[:], last.appHash
		answer.Sync.Height, answer.Sync.Time = last.height, last.time
		answer.Sync.EarliestHash, answer.Sync.EarliestAppHash = first.hash[:], first.appHash
		answer.Sync.EarliestHeight, answer.Sync.EarliestTime = first.height, first.time
		answer.Sync.CatchingUp = last.height < durable
	}
	return answer, nil
}

func (s *server) info(ctx context.Context, _ params) (any, error) {
	bounded, cancel := s.bounded(ctx)
	defer cancel()
	info, err := s.application.info(bounded, s.application.query)
	return map[string]Info{"response": info}, err
}

func (s *server) query(ctx context.Context, given params) (any, error) {
	bounded, cancel := s.bounded(ctx)
	defer cancel()
	var answer QueryAnswer
	err := s.application.query.call(bounded, callQuery, &queryRequest{
		data: []byte(given.text["data"]), path: given.text["path"],
		height: given.numbers["height"], prove: given.truth["prove"]}, &answer)
	return map[string]QueryAnswer{"response": answer}, err
}

func (s *server) check(ctx context.Context, given params) (any, error) {
	bounded, cancel := s.bounded(ctx)
	defer cancel()
	answer, err := s.application.check(bounded, []byte(given.text["tx"]))
	return whole(answer), err
}

// broadcastAnswer is the answer of broadcast_tx_sync and broadcast_tx_async.
type broadcastAnswer struct {
	Code      uint32   `json:"code"`
	Data      hexBytes `json:"data"`
	Log       string   `json:"log"`
	Codespace string   `json:"codespace"`
	Hash      hexBytes `json:"hash"`
}

func (s *server) broadcastSync(ctx context.Context, given params) (any, error) {
	bounded, cancel := s.bounded(ctx)
	defer cancel()
	transaction := []byte(given.text["tx"])
	checked, _, err := s.pool.take(bounded, transaction)
	hash := sha256.Sum256(transaction)
	return broadcastAnswer{checked.Code, checked.Data, checked.Log, checked.Codespace,
		hash[:]}, err
}

// broadcastAsync is broadcastSync that says nothing about the check. It waits for it all the same:
// so what it may still have to do is bounded by the calls under way.
func (s *server) broadcastAsync(ctx context.Context, given params) (any, error) {
	answer, err := s.broadcastSync(ctx, given)
	if err != nil {
		return nil, err
	}
	return broadcastAnswer{Hash: answer.(broadcastAnswer).Hash}, nil
}

// commitAnswerRPC is the answer of broadcast_tx_commit.
type commitAnswerRPC struct {
	Check  TxResult `json:"check_tx"`
	Result TxResult `json:"tx_result"`
	Hash   hexBytes `json:"hash"`
	Height int64    `json:"height,string"`
}

// leftOutResult returns the result of a transaction that the chain has, and that was left out of
// its block.
func leftOutResult(reason why) TxResult {
	return TxResult{Code: 1, Codespace: "ledgerd", Log: map[why]string{
		notAccepted: "the application did not accept the transaction in its block " +
			"(ProcessProposal); it was not executed",
		noRoom: "the block has more transactions than the application gets at once; this one " +
			"was not executed: post it again",
		notAsked: "the application did not accept so many transactions of the organisation in " +
			"the block that it was not asked about this one; it was not executed: post it again",
	}[reason]}
}

func (s *server) broadcastCommit(ctx context.Context, given params) (any, error) {
	bounded, cancel := context.WithTimeout(ctx, time.Duration(s.options.Config.Timing.Commit))
	defer cancel()
	transaction := []byte(given.text["tx"])
	hash := sha256.Sum256(transaction)
	checked, taken, err := s.pool.take(bounded, transaction)
	if err != nil {
		return nil, fmt.Errorf("error on broadcastTxCommit: %w", err)
	}
	answer := commitAnswerRPC{Check: whole(checked), Result: whole(TxResult{}), Hash: hash[:]}
	if taken == nil {
		return answer, nil
	}
	at, err := s.pool.await(bounded, taken)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, errors.New("timed out waiting for tx to be included in a block: it may still " +
			"get into one, see tx")
	}
	if err != nil {
		return nil, err
	}
	answer.Height = at.block.height
	if at.index < 0 {
		answer.Result = whole(leftOutResult(why(at.index)))
		return answer, nil
	}
	answer.Result = whole(at.block.results[at.index])
	return answer, nil
}

func (s *server) unconfirmed(context.Context, params) (any, error) {
	count, bytes := s.pool.waiting()
	return struct {
		Count int       `json:"n_txs,string"`
		Total int       `json:"total,string"`
		Bytes int       `json:"total_bytes,string"`
		Txs   []*[]byte `json:"txs"`
	}{count, count, bytes, nil}, nil
}

// resultsAnswer is the answer of block_results.
type resultsAnswer struct {
	Height     int64             `json:"height,string"`
	Results    []TxResult        `json:"txs_results"`
	Events     []Event           `json:"finalize_block_events"`
	Validators []ValidatorUpdate `json:"validator_updates"`
	Params     *ConsensusParams  `json:"consensus_param_updates"`
	AppHash    []byte            `json:"app_hash"`
}

func (s *server) blockResults(_ context.Context, given params) (any, error) {
	height := given.numbers["height"]
	found := s.results.at(height)
	if found == nil {
		first, last, _ := s.results.span()
		if last == nil {
			return nil, errors.New("no block was executed since the adapter started: results are " +
				"kept in memory")
		}
		return nil, fmt.Errorf("height %d is not available: results of the blocks %d to %d are "+
			"kept", height, first.height, last.height)
	}
	answer := resultsAnswer{Height: found.height, Events: wholeEvents(found.events),
		Validators: found.validators, Params: found.params, AppHash: found.appHash}
	for _, each := range found.results {
		answer.Results = append(answer.Results, whole(each))
	}
	return answer, nil
}

func (s *server) transaction(_ context.Context, given params) (any, error) {
	hash := []byte(given.text["hash"])
	if given.truth["prove"] {
		return nil, errors.New("the adapter has no proofs of transactions: the ledger proves the " +
			"record, see `ledgerd tx status --proof`")
	}
	if len(hash) != sha256.Size {
		return nil, fmt.Errorf("a hash has %d bytes, and this one has %d", sha256.Size, len(hash))
	}
	at, found := s.results.find(transactionHash(hash))
	if !found {
		return nil, fmt.Errorf("tx (%X) not found among the results that are kept", hash)
	}
	return struct {
		Hash   hexBytes `json:"hash"`
		Height int64    `json:"height,string"`
		Index  int      `json:"index"`
		Result TxResult `json:"tx_result"`
		Tx     []byte   `json:"tx"`
	}{hash, at.block.height, at.index, whole(at.block.results[at.index]),
		at.block.transactions[at.index]}, nil
}
