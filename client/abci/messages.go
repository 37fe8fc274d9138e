package abci

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// call is a kind of request with its answer: their numbers in the envelopes, which the
// specification of ABCI 2.0 gives.
type call struct {
	name            string
	request, answer protowire.Number
}

var (
	callFlush   = call{"Flush", 2, 3}
	callInfo    = call{"Info", 3, 4}
	callInit    = call{"InitChain", 5, 6}
	callQuery   = call{"Query", 6, 7}
	callCheck   = call{"CheckTx", 8, 9}
	callCommit  = call{"Commit", 11, 12}
	callPrepare = call{"PrepareProposal", 16, 17}
	callProcess = call{"ProcessProposal", 17, 18}
	callFinal   = call{"FinalizeBlock", 20, 21}
)

// answerException is the number of the answer that reports an error of the application.
const answerException protowire.Number = 1

// empty is a message without fields.
type empty struct{}

func (*empty) fields() []field { return nil }

type exception struct{ text string }

func (m *exception) fields() []field { return []field{{1, &m.text}} }

type infoRequest struct {
	version                   string
	blockVersion, peerVersion uint64
	abciVersion               string
}

func (m *infoRequest) fields() []field {
	return []field{{1, &m.version}, {2, &m.blockVersion}, {3, &m.peerVersion},
		{4, &m.abciVersion}}
}

// Info is what an application says of itself.
type Info struct {
	Data       string `json:"data"`
	Version    string `json:"version"`
	AppVersion uint64 `json:"app_version,string"`
	Height     int64  `json:"last_block_height,string"`
	AppHash    []byte `json:"last_block_app_hash"`
}

func (m *Info) fields() []field {
	return []field{{1, &m.Data}, {2, &m.Version}, {3, &m.AppVersion}, {4, &m.Height},
		{5, &m.AppHash}}
}

type initRequest struct {
	time          time.Time
	chain         string
	params        *ConsensusParams
	validators    []ValidatorUpdate
	state         []byte
	initialHeight int64
}

func (m *initRequest) fields() []field {
	return []field{{1, &m.time}, {2, &m.chain}, {3, optional[ConsensusParams, *ConsensusParams]{
		&m.params}}, {4, many[ValidatorUpdate, *ValidatorUpdate]{&m.validators}}, {5, &m.state},
		{6, &m.initialHeight}}
}

type initAnswer struct {
	params     *ConsensusParams
	validators []ValidatorUpdate
	appHash    []byte
}

func (m *initAnswer) fields() []field {
	return []field{{1, optional[ConsensusParams, *ConsensusParams]{&m.params}},
		{2, many[ValidatorUpdate, *ValidatorUpdate]{&m.validators}}, {3, &m.appHash}}
}

type queryRequest struct {
	data   []byte
	path   string
	height int64
	prove  bool
}

func (m *queryRequest) fields() []field {
	return []field{{1, &m.data}, {2, &m.path}, {3, &m.height}, {4, &m.prove}}
}

// QueryAnswer is an application's answer to a query.
type QueryAnswer struct {
	Code      uint32    `json:"code"`
	Log       string    `json:"log"`
	Info      string    `json:"info"`
	Index     int64     `json:"index,string"`
	Key       []byte    `json:"key"`
	Value     []byte    `json:"value"`
	Proof     *ProofOps `json:"proofOps"`
	Height    int64     `json:"height,string"`
	Codespace string    `json:"codespace"`
}

func (m *QueryAnswer) fields() []field {
	return []field{{1, &m.Code}, {3, &m.Log}, {4, &m.Info}, {5, &m.Index}, {6, &m.Key},
		{7, &m.Value}, {8, optional[ProofOps, *ProofOps]{&m.Proof}}, {9, &m.Height},
		{10, &m.Codespace}}
}

// ProofOps is a proof of a query's answer, as the application made it.
type ProofOps struct {
	Ops []ProofOp `json:"ops"`
}

func (m *ProofOps) fields() []field { return []field{{1, many[ProofOp, *ProofOp]{&m.Ops}}} }

// ProofOp is a step of a proof.
type ProofOp struct {
	Type string `json:"type"`
	Key  []byte `json:"key"`
	Data []byte `json:"data"`
}

func (m *ProofOp) fields() []field { return []field{{1, &m.Type}, {2, &m.Key}, {3, &m.Data}} }

type checkRequest struct {
	transaction []byte
	kind        uint32 // 0: new
}

func (m *checkRequest) fields() []field { return []field{{1, &m.transaction}, {2, &m.kind}} }

// TxResult is an application's answer about a transaction: when it was checked, or executed.
type TxResult struct {
	Code      uint32  `json:"code"`
	Data      []byte  `json:"data"`
	Log       string  `json:"log"`
	Info      string  `json:"info"`
	GasWanted int64   `json:"gas_wanted,string"`
	GasUsed   int64   `json:"gas_used,string"`
	Events    []Event `json:"events"`
	Codespace string  `json:"codespace"`
}

func (m *TxResult) fields() []field {
	return []field{{1, &m.Code}, {2, &m.Data}, {3, &m.Log}, {4, &m.Info}, {5, &m.GasWanted},
		{6, &m.GasUsed}, {7, many[Event, *Event]{&m.Events}}, {8, &m.Codespace}}
}

// Event is what an application says about a transaction or a block, for those that look for it.
type Event struct {
	Type       string      `json:"type"`
	Attributes []Attribute `json:"attributes"`
}

func (m *Event) fields() []field {
	return []field{{1, &m.Type}, {2, many[Attribute, *Attribute]{&m.Attributes}}}
}

// Attribute is a part of an Event.
type Attribute struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	Index bool   `json:"index"`
}

func (m *Attribute) fields() []field { return []field{{1, &m.Key}, {2, &m.Value}, {3, &m.Index}} }

type commitAnswer struct{ retain int64 }

func (m *commitAnswer) fields() []field { return []field{{3, &m.retain}} }

// lastCommit is the votes for the block before. There are none here, and so is every misbehaviour.
type lastCommit struct{ round int32 }

func (m *lastCommit) fields() []field { return []field{{1, &m.round}} }

type prepareRequest struct {
	maxBytes     int64
	transactions [][]byte
	commit       lastCommit
	height       int64
	time         time.Time
}

func (m *prepareRequest) fields() []field {
	return []field{{1, &m.maxBytes}, {2, &m.transactions}, {3, &m.commit}, {5, &m.height},
		{6, &m.time}}
}

type prepareAnswer struct{ transactions [][]byte }

func (m *prepareAnswer) fields() []field { return []field{{1, &m.transactions}} }

// blockRequest is the content of both ProcessProposal and FinalizeBlock.
type blockRequest struct {
	transactions [][]byte
	commit       lastCommit
	hash         []byte
	height       int64
	time         time.Time
}

func (m *blockRequest) fields() []field {
	return []field{{1, &m.transactions}, {2, &m.commit}, {4, &m.hash}, {5, &m.height},
		{6, &m.time}}
}

// The answers to ProcessProposal.
const (
	proposalAccepted = 1
	proposalRejected = 2
)

type processAnswer struct{ status uint32 }

func (m *processAnswer) fields() []field { return []field{{1, &m.status}} }

type finalAnswer struct {
	events     []Event
	results    []TxResult
	validators []ValidatorUpdate
	params     *ConsensusParams
	appHash    []byte
}

func (m *finalAnswer) fields() []field {
	return []field{{1, many[Event, *Event]{&m.events}}, {2, many[TxResult, *TxResult]{&m.results}},
		{3, many[ValidatorUpdate, *ValidatorUpdate]{&m.validators}},
		{4, optional[ConsensusParams, *ConsensusParams]{&m.params}}, {5, &m.appHash}}
}

// ValidatorUpdate is the power of a validator. It means nothing to the ledger, whose members are
// decided by its operators.
type ValidatorUpdate struct {
	Key   PublicKey `json:"pub_key"`
	Power int64     `json:"power,string"`
}

func (m *ValidatorUpdate) fields() []field { return []field{{1, &m.Key}, {2, &m.Power}} }

// PublicKey is the key of a validator: one of its fields is set.
type PublicKey struct{ Ed25519, Secp256k1 []byte }

func (m *PublicKey) fields() []field { return []field{{1, &m.Ed25519}, {2, &m.Secp256k1}} }

// ConsensusParams are parameters that an application's genesis file has, and that the application
// may change. The adapter passes them on, and obeys none of them.
type ConsensusParams struct {
	Block     *BlockParams     `json:"block,omitempty"`
	Evidence  *EvidenceParams  `json:"evidence,omitempty"`
	Validator *ValidatorParams `json:"validator,omitempty"`
	Version   *VersionParams   `json:"version,omitempty"`
	ABCI      *ABCIParams      `json:"abci,omitempty"`
}

func (m *ConsensusParams) fields() []field {
	return []field{{1, optional[BlockParams, *BlockParams]{&m.Block}},
		{2, optional[EvidenceParams, *EvidenceParams]{&m.Evidence}},
		{3, optional[ValidatorParams, *ValidatorParams]{&m.Validator}},
		{4, optional[VersionParams, *VersionParams]{&m.Version}},
		{5, optional[ABCIParams, *ABCIParams]{&m.ABCI}}}
}

// BlockParams bound blocks.
type BlockParams struct {
	MaxBytes int64 `json:"max_bytes,string"`
	MaxGas   int64 `json:"max_gas,string"`
}

func (m *BlockParams) fields() []field { return []field{{1, &m.MaxBytes}, {2, &m.MaxGas}} }

// EvidenceParams bound evidence of misbehaviour.
type EvidenceParams struct {
	MaxAgeBlocks int64         `json:"max_age_num_blocks,string"`
	MaxAge       time.Duration `json:"max_age_duration,string"`
	MaxBytes     int64         `json:"max_bytes,string"`
}

func (m *EvidenceParams) fields() []field {
	return []field{{1, &m.MaxAgeBlocks}, {2, &m.MaxAge}, {3, &m.MaxBytes}}
}

// ValidatorParams restrict the keys of validators.
type ValidatorParams struct {
	Types []string `json:"pub_key_types"`
}

func (m *ValidatorParams) fields() []field { return []field{{1, &m.Types}} }

// VersionParams have the version of the application.
type VersionParams struct {
	App uint64 `json:"app,string"`
}

func (m *VersionParams) fields() []field { return []field{{1, &m.App}} }

// ABCIParams configure the interface.
type ABCIParams struct {
	VoteExtensions int64 `json:"vote_extensions_enable_height,string"`
}

func (m *ABCIParams) fields() []field { return []field{{1, &m.VoteExtensions}} }
