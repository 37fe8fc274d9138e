package abci

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// chainForm is that of an application's chain id: what CometBFT allows, and a record's key has.
var chainForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,50}$`)

// maxGenesisBytes bounds an application's genesis file.
const maxGenesisBytes = 64 << 20

// Genesis is how an application's chain begins. All adapters of an application need the same.
type Genesis struct {
	Chain string
	// Time is zero if the ledger's own genesis says it.
	Time       time.Time
	First      int64 // the height of the first block
	Params     *ConsensusParams
	Validators []ValidatorUpdate
	AppState   []byte
}

// number is an integer in CometBFT's JSON: text, or a number.
type number int64

// UnmarshalJSON reads a number.
func (n *number) UnmarshalJSON(data []byte) error {
	value, err := strconv.ParseInt(strings.Trim(string(data), `"`), 10, 64)
	if err != nil {
		return fmt.Errorf("%.40s is no integer", data)
	}
	*n = number(value)
	return nil
}

// genesisFile is CometBFT's genesis.json.
type genesisFile struct {
	Time       time.Time        `json:"genesis_time"`
	Chain      string           `json:"chain_id"`
	First      number           `json:"initial_height"`
	Params     *ConsensusParams `json:"consensus_params"`
	Validators []struct {
		Key struct {
			Type  string `json:"type"`
			Value []byte `json:"value"`
		} `json:"pub_key"`
		Power number `json:"power"`
	} `json:"validators"`
	AppState json.RawMessage `json:"app_state"`
}

// ParseGenesis reads CometBFT's genesis.json.
func ParseGenesis(text []byte) (*Genesis, error) {
	if len(text) > maxGenesisBytes {
		return nil, fmt.Errorf("a genesis file of more than %d bytes", maxGenesisBytes)
	}
	var file genesisFile
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("this is no genesis.json of CometBFT 0.38: %w", err)
	}
	genesis := &Genesis{Chain: file.Chain, Time: file.Time, First: int64(file.First),
		Params: file.Params, AppState: file.AppState}
	if bytes.Equal(genesis.AppState, []byte("null")) {
		genesis.AppState = nil
	}
	for i, each := range file.Validators {
		update := ValidatorUpdate{Power: int64(each.Power)}
		switch each.Key.Type {
		case "tendermint/PubKeyEd25519":
			update.Key.Ed25519 = each.Key.Value
		case "tendermint/PubKeySecp256k1":
			update.Key.Secp256k1 = each.Key.Value
		default:
			return nil, fmt.Errorf("validators[%d]: key type %q: use tendermint/PubKeyEd25519 or "+
				"tendermint/PubKeySecp256k1", i, each.Key.Type)
		}
		genesis.Validators = append(genesis.Validators, update)
	}
	return genesis, genesis.check()
}

// check validates a genesis, and sets the first height.
func (g *Genesis) check() error {
	if !chainForm.MatchString(g.Chain) {
		return fmt.Errorf("chain_id %.60q: use 1 to 50 letters, digits, '.', '-' and '_'", g.Chain)
	}
	if g.First == 0 {
		g.First = 1
	}
	if g.First < 1 {
		return fmt.Errorf("initial_height %d: use 1 or more, the height of the ledger's block "+
			"that is the application's first", g.First)
	}
	if g.Params != nil && g.Params.ABCI != nil && g.Params.ABCI.VoteExtensions != 0 {
		return errors.New("consensus_params.abci.vote_extensions_enable_height: the ledger has " +
			"no votes to extend; set it to 0, if the application can go without")
	}
	return nil
}

// standardParams are CometBFT's defaults: an application may rely on some being there.
func standardParams() *ConsensusParams {
	return &ConsensusParams{Block: &BlockParams{MaxBytes: 22020096, MaxGas: -1},
		Evidence: &EvidenceParams{MaxAgeBlocks: 100000, MaxAge: 48 * time.Hour,
			MaxBytes: 1 << 20},
		Validator: &ValidatorParams{Types: []string{"ed25519"}}, Version: &VersionParams{},
		ABCI: &ABCIParams{}}
}

// MarshalJSON writes a key as CometBFT does.
func (m PublicKey) MarshalJSON() ([]byte, error) {
	name, field, key := "Ed25519", "ed25519", m.Ed25519
	if len(m.Secp256k1) > 0 {
		name, field, key = "Secp256K1", "secp256k1", m.Secp256k1
	}
	return []byte(fmt.Sprintf(`{"Sum":{"type":"tendermint.crypto.PublicKey_%s",`+
		`"value":{"%s":"%s"}}}`, name, field, base64.StdEncoding.EncodeToString(key))), nil
}
