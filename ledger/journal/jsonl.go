package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/ledgerd/ledgerd/ledger"
)

// A journal in JSON lines has, in this order:
//
//	journal      once: of which chain it is
//	block        of each block: its header in words, and how many bytes its encoding has
//	part         the encoding of the block, in parts
//	bundle       of each bundle: who signed
//	entry        of each transaction of the bundle: all of it, and what became of it
//	certificate  the signatures of the members that make the block final, if there are some
//	end          once: the last block
//
// The parts and the certificates are what a verifier checks. All else follows from them.
var jsonl = Format{name: "jsonl", block: `{"type":"block",`, end: `{"type":"end",`,
	mark: func(text []byte) (ledger.Height, ledger.Hash, error) {
		var line blockLine
		err := json.Unmarshal(text, &line)
		return line.Height, line.Hash, err
	},
	make: func(out *bufio.Writer, source Source, options *Options) writer {
		return &lines{out: out, source: source, proofs: options.Proofs}
	},
}

const (
	// linesVersion is the version of journals in JSON lines.
	linesVersion = 1
	// partBytes is the size of a part of a block.
	partBytes = 1 << 20
	// maxLine bounds a line. The longest one is that of a transaction whose text needs escapes.
	maxLine = 16 << 20
)

type journalLine struct {
	Type    string         `json:"type"`
	Version int            `json:"version"`
	Chain   string         `json:"chain"`
	Genesis ledger.Hash    `json:"genesis"`
	Book    ledger.Hash    `json:"book"`
	Shard   ledger.ShardID `json:"shard"`
	// Shards is how many shards the book had when this chain began.
	Shards int `json:"shards"`
	// Proofs says that entries have their proofs.
	Proofs bool `json:"proofs"`
}

type blockLine struct {
	Type     string              `json:"type"`
	Height   ledger.Height       `json:"height"`
	Hash     ledger.Hash         `json:"hash"`
	Previous ledger.Hash         `json:"previous"`
	TimeMS   ledger.Milliseconds `json:"time_ms"`
	Time     string              `json:"time"`
	Epoch    ledger.Epoch        `json:"epoch"`
	Round    ledger.Round        `json:"round"`
	// Transactions is the number of entries of the block, and Total that of all blocks up to it.
	Transactions     uint32      `json:"transactions"`
	Total            uint64      `json:"total"`
	TransactionsRoot ledger.Hash `json:"transactions_root"`
	ResultsRoot      ledger.Hash `json:"results_root"`
	BundlesRoot      ledger.Hash `json:"bundles_root"`
	StateDigest      ledger.Hash `json:"state_digest"`
	// Bytes is the size of the block's encoding, which is in the next lines.
	Bytes int `json:"bytes"`
}

type partLine struct {
	Type    string        `json:"type"`
	Height  ledger.Height `json:"height"`
	Encoded []byte        `json:"encoded"` // in base64
}

type bundleLine struct {
	Type   string        `json:"type"`
	Height ledger.Height `json:"height"`
	Bundle int           `json:"bundle"`
	Packed bool          `json:"packed"`
	// Number is the bundle's number in the stream of the parent shard, if it came from there.
	Number uint64 `json:"number,omitempty"`
	// Root is what the signatures sign, over so many transactions.
	Root         ledger.Hash        `json:"root"`
	Transactions int                `json:"transactions"`
	Signatures   []ledger.Signature `json:"signatures"`
}

type entryLine struct {
	Type          string                   `json:"type"`
	Height        ledger.Height            `json:"height"`
	Index         int                      `json:"index"`
	ID            ledger.Hash              `json:"id"`
	Outcome       string                   `json:"outcome"`
	Code          ledger.Code              `json:"code"`
	Item          *uint32                  `json:"item,omitempty"`
	Reason        string                   `json:"reason,omitempty"`
	Signer        ledger.OrganisationName  `json:"signer"`
	Nonce         *ledger.Nonce            `json:"nonce,omitempty"`
	LastValid     ledger.Height            `json:"last_valid,omitempty"`
	Deadline      ledger.Milliseconds      `json:"deadline,omitempty"`
	Registrations []ledger.Registration    `json:"registrations,omitempty"`
	Openings      []ledger.Opening         `json:"openings,omitempty"`
	Postings      []ledger.Posting         `json:"postings,omitempty"`
	Records       []recordLine             `json:"records,omitempty"`
	Change        *ledger.MembershipChange `json:"change,omitempty"`
	Verdict       *ledger.Verdict          `json:"verdict,omitempty"`
	Policy        *ledger.PolicyChange     `json:"policy,omitempty"`
	Asset         *ledger.AssetChange      `json:"asset,omitempty"`
	Hold          *ledger.Hold             `json:"hold,omitempty"`
	HoldEnd       *ledger.HoldEnd          `json:"hold_end,omitempty"`
	Details       *ledger.Details          `json:"details,omitempty"`
	Account       *ledger.AccountChange    `json:"account,omitempty"`
	Schedule      *ledger.Schedule         `json:"schedule,omitempty"`
	ScheduleEnd   *ledger.ScheduleEnd      `json:"schedule_end,omitempty"`
	Occurrence    *ledger.Occurrence       `json:"occurrence,omitempty"`
	Charter       *ledger.CharterChange    `json:"charter,omitempty"`
	Book          *ledger.BookChange       `json:"book,omitempty"`
	Cancellation  *ledger.Cancellation     `json:"cancellation,omitempty"`
	Arrival       *ledger.Arrival          `json:"arrival,omitempty"`
	// Note is empty, and NoteBase64 is not, if the note is no text.
	Note       string `json:"note,omitempty"`
	NoteBase64 []byte `json:"note_base64,omitempty"`
	Proof      []byte `json:"proof,omitempty"` // in base64
}

type recordLine struct {
	Key ledger.RecordKey `json:"key"`
	// Value is empty, and ValueBase64 is not, if the value is no text.
	Value       string `json:"value,omitempty"`
	ValueBase64 []byte `json:"value_base64,omitempty"`
}

type certificateLine struct {
	Type    string              `json:"type"`
	Height  ledger.Height       `json:"height"`
	Hash    ledger.Hash         `json:"hash"`
	Epoch   ledger.MembersEpoch `json:"epoch"`
	Members []uint64            `json:"members"` // that signed
	Encoded []byte              `json:"encoded"` // in base64
}

type endLine struct {
	Type         string        `json:"type"`
	Height       ledger.Height `json:"height"`
	Hash         ledger.Hash   `json:"hash"`
	Transactions uint64        `json:"transactions"`
}

// lines writes JSON lines. Only writeBlock needs the source.
type lines struct {
	out    *bufio.Writer
	source Source
	proofs bool
}

func (w *lines) recall([]byte) error { return nil }

func (w *lines) put(line any) error {
	encoder := json.NewEncoder(w.out)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(line)
}

func (w *lines) begin() error { return w.head(w.source.Genesis()) }

func (w *lines) head(genesis *ledger.Genesis) error {
	return w.put(journalLine{Type: "journal", Version: linesVersion, Chain: genesis.Chain,
		Genesis: genesis.Hash(), Book: genesis.Book(), Shard: genesis.Shard,
		Shards: genesis.BookShards(), Proofs: w.proofs})
}

func (w *lines) finish(last *ledger.Block) error {
	return w.put(endLine{Type: "end", Height: last.Header.Height, Hash: last.Hash,
		Transactions: last.Header.Total})
}

func (w *lines) writeBlock(block *ledger.Block) error {
	certificate, err := w.source.Certificate(block.Header.Height)
	if err != nil {
		return err
	}
	if err := w.block(block, block.Encode()); err != nil || certificate == nil {
		return err
	}
	return w.certificate(certificate)
}

// block writes a block, except for its certificate.
func (w *lines) block(block *ledger.Block, encoded []byte) error {
	h := &block.Header
	if err := w.put(blockLine{Type: "block", Height: h.Height, Hash: block.Hash,
		Previous: h.Previous, TimeMS: h.Time, Time: timeText(block), Epoch: h.Epoch,
		Round: h.Round, Transactions: h.Transactions, Total: h.Total,
		TransactionsRoot: h.TransactionsRoot, ResultsRoot: h.ResultsRoot,
		BundlesRoot: h.BundlesRoot, StateDigest: h.StateDigest, Bytes: len(encoded)}); err != nil {
		return err
	}
	for rest := encoded; len(rest) > 0; {
		part := rest[:min(partBytes, len(rest))]
		rest = rest[len(part):]
		if err := w.put(partLine{Type: "part", Height: h.Height, Encoded: part}); err != nil {
			return err
		}
	}
	bundle := -1
	for i, entry := range block.All() {
		for ; bundle < entry.Bundle; bundle++ {
			seal := &block.Bundles[bundle+1]
			if err := w.put(bundleLine{Type: "bundle", Height: h.Height, Bundle: bundle + 1,
				Packed: seal.Packed(), Number: seal.Number, Root: seal.Root,
				Transactions: seal.Len(), Signatures: seal.Signatures}); err != nil {
				return err
			}
		}
		if err := w.entry(block, i, entry); err != nil {
			return err
		}
	}
	return nil
}

func (w *lines) entry(block *ledger.Block, index int, entry *ledger.Entry) error {
	line := entryOf(block, index, entry)
	if w.proofs {
		line.Proof = block.Proof(index).Encode()
	}
	return w.put(&line)
}

// EntryLine returns the line of an entry in a journal of JSON lines, without a proof and without
// the end of the line.
func EntryLine(block *ledger.Block, index int, entry *ledger.Entry) ([]byte, error) {
	var out bytes.Buffer
	line := entryOf(block, index, entry)
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(&line)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

func entryOf(block *ledger.Block, index int, entry *ledger.Entry) entryLine {
	t := entry.Transaction()
	line := entryLine{Type: "entry", Height: block.Header.Height, Index: index, ID: entry.ID,
		Code: entry.Result.Code, Signer: t.Signer, LastValid: t.LastValid, Deadline: t.Deadline,
		Registrations: t.Registrations, Openings: t.Openings, Postings: t.Postings,
		Change: t.Change, Verdict: t.Verdict, Policy: t.Policy, Charter: t.Charter, Book: t.Book,
		Asset: t.Asset, Account: t.Account, Hold: t.Hold, HoldEnd: t.HoldEnd, Details: t.Details,
		Cancellation: t.Cancellation, Arrival: t.Arrival, Schedule: t.Schedule,
		ScheduleEnd: t.ScheduleEnd, Occurrence: t.Occurrence}
	line.Outcome, line.Reason = outcomeOf(entry, t)
	if entry.Result.Item != ledger.NoItem {
		line.Item = &entry.Result.Item
	}
	if t.TakesNonce() {
		line.Nonce = &t.Nonce
	}
	line.Note, line.NoteBase64 = textOr(t.Note)
	for i := range t.Records {
		value, other := textOr(t.Records[i].Value)
		line.Records = append(line.Records, recordLine{t.Records[i].Key, value, other})
	}
	return line
}

func (w *lines) certificate(c *ledger.Certificate) error {
	line := certificateLine{Type: "certificate", Height: c.Height, Hash: c.Hash, Epoch: c.Epoch,
		Members: make([]uint64, len(c.Seals)), Encoded: c.Encode()}
	for i := range c.Seals {
		line.Members[i] = uint64(c.Seals[i].Member)
	}
	return w.put(line)
}

// textOr returns data as text if it is text, and else as it is.
func textOr(data []byte) (text string, other []byte) {
	if utf8.Valid(data) {
		return string(data), nil
	}
	return "", data
}

// typeOf returns the type of a line.
func typeOf(line []byte) (string, error) {
	var typed struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(line, &typed); err != nil {
		return "", fmt.Errorf("it is not a line of JSON: %w", err)
	}
	return typed.Type, nil
}
