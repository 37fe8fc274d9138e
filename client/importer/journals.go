package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"unicode/utf8"

	"github.com/ledgerd/ledgerd/ledger"
	journals "github.com/ledgerd/ledgerd/ledger/journal"
)

// Journals become lines: each entry that took effect, once. An entry that failed is no line. An
// entry of several shards is a line once all of them have set their parts aside, and before any of
// them goes on after it took effect there. So a line has the amounts that it spends, and what
// spends the amounts that it gives comes after it (merge).
//
// The accounts of a line have the names that they had. The note is a JSON object with the id that
// the entry had, and with its note. A transfer of a packed bundle without a note has none, so that
// it can be packed again; the first line has one in any case, which sets this import apart.

// OpenJournals opens the journals of all shards of a book, in JSON lines. The caller closes the
// source.
func OpenJournals(paths ...string) (_ *Source, err error) {
	source := &Source{name: paths[0]}
	defer func() {
		if err != nil {
			err = errors.Join(err, source.Close())
		}
	}()
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("importer: %w", err)
		}
		source.journals = append(source.journals, file)
		info, err := file.Stat()
		if err != nil {
			return nil, fmt.Errorf("importer: %w", err)
		}
		source.size += info.Size()
	}
	if err := source.findIssuers(); err != nil {
		return nil, err
	}
	if err := source.rewind(); err != nil || len(paths) == 1 {
		return source, err
	}
	// Journals that end too early are to be exported again, and then have another order. So nothing
	// of them may be imported before.
	if _, err := io.Copy(io.Discard, source.lines); err != nil {
		return nil, err
	}
	return source, source.rewind()
}

// IsJournal reports whether a file is a journal in JSON lines.
func IsJournal(path string) bool {
	// What is read of a pipe is gone, and so is its writer once it is closed.
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return false
	}
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	begin := make([]byte, 64)
	n, err := io.ReadFull(file, begin)
	return (err == nil || errors.Is(err, io.ErrUnexpectedEOF)) && journals.Is(begin[:n])
}

// Issuers returns the accounts that may go below zero, of journals. They are issuers there.
func (s *Source) Issuers() []string { return s.issuers }

// findIssuers reads all journals for the accounts that are issuers. They have to be known before
// the first line.
func (s *Source) findIssuers() error {
	found := map[string]bool{}
	for _, file := range s.journals {
		reader, err := journals.NewReader(file)
		if err != nil {
			return fmt.Errorf("importer: %s: %w", file.Name(), err)
		}
		for {
			block, err := reader.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("importer: %s: %w", file.Name(), err)
			}
			for i := range block.Unpacked {
				entry := &block.Unpacked[i]
				if !entry.Result.OK() {
					continue
				}
				for _, opening := range entry.Transaction().Openings {
					if opening.Issuer {
						found[string(opening.Account)] = true
					}
				}
			}
		}
	}
	s.issuers = slices.Sorted(maps.Keys(found))
	return nil
}

// merged reads journals as lines.
type merged struct {
	chains []*journalChain
	// crossings are the transactions of several shards that are under way.
	crossings map[ledger.Hash]*crossing
	lines     bytes.Buffer // not read yet
	begun     bool         // there was a line
}

// journalChain is a journal that is read.
type journalChain struct {
	reader *journals.Reader
	shard  ledger.ShardID
	name   string
	block  *ledger.Block
	next   int // the next entry of the block
	ended  bool
}

// crossing is a transaction of several shards.
type crossing struct {
	transaction *ledger.Transaction
	// aside are the chains that have set their parts aside, and over those where it has ended.
	aside, over map[ledger.ShardID]bool
	// concerns are the shards that gave a verdict on it, and those that waited for one.
	concerns map[ledger.ShardID]bool
	written  bool
	refused  bool // by one of them
}

// newMerged begins to read journals.
func newMerged(names []string, files []io.Reader) (*merged, error) {
	m := &merged{crossings: map[ledger.Hash]*crossing{}}
	var book ledger.Hash
	shards := 0
	for i, file := range files {
		reader, err := journals.NewReader(file)
		if err != nil {
			return nil, fmt.Errorf("importer: %s: %w", names[i], err)
		}
		shard, count := reader.Shard()
		switch {
		case i > 0 && reader.Book() != book:
			return nil, fmt.Errorf("importer: %s is the journal of another book", names[i])
		case slices.ContainsFunc(m.chains, func(c *journalChain) bool { return c.shard == shard }):
			return nil, fmt.Errorf("importer: %s is a second journal of shard %d", names[i], shard)
		}
		book, shards = reader.Book(), max(shards, count)
		m.chains = append(m.chains, &journalChain{reader: reader, shard: shard, name: names[i]})
	}
	if len(m.chains) < shards {
		return nil, fmt.Errorf("importer: the book has %d shards: name the journals of all of "+
			"them, not of %d", shards, len(m.chains))
	}
	slices.SortFunc(m.chains, func(a, b *journalChain) int { return int(a.shard) - int(b.shard) })
	return m, nil
}

// Read returns the next lines, in an order that follows from the journals alone.
func (m *merged) Read(to []byte) (int, error) {
	for m.lines.Len() == 0 {
		moved, ended := false, true
		for _, c := range m.chains {
			for m.lines.Len() == 0 && !c.ended {
				went, err := m.step(c)
				if err != nil {
					return 0, fmt.Errorf("importer: %s: %w", c.name, err)
				}
				if !went {
					break
				}
				moved = true
			}
			ended = ended && c.ended
			if m.lines.Len() > 0 {
				break
			}
		}
		if m.lines.Len() == 0 && !moved {
			if ended {
				return 0, io.EOF
			}
			return 0, errors.New("importer: a transaction took effect in one journal, and " +
				"another journal ends before it: export the journals of all shards again")
		}
	}
	return m.lines.Read(to)
}

// step takes the next entry of a chain. It returns false if that has to wait for another chain.
func (m *merged) step(c *journalChain) (bool, error) {
	if c.block == nil || c.next == c.block.Len() {
		block, err := c.reader.Next()
		if errors.Is(err, io.EOF) {
			c.ended = true
			return true, nil
		}
		c.block, c.next = block, 0
		return true, err
	}
	entry := c.block.Entry(c.next)
	t := entry.Transaction()
	code := entry.Result.Code
	if _, departure := departed(t); departure || t.Verdict == nil && code != ledger.SetAside {
		if entry.Result.OK() && len(t.Postings) > 0 {
			packed := c.block.Bundles[entry.Bundle].Packed()
			if err := m.write(entry.ID, t, packed && len(t.Note) == 0); err != nil {
				return false, err
			}
		}
		c.next++
		return true, nil
	}
	id := entry.ID
	if t.Verdict != nil {
		id = t.Verdict.ID
	}
	crossed := m.crossings[id]
	if crossed == nil {
		if t.Verdict != nil {
			c.next++ // it is about one that has ended here
			return true, nil
		}
		crossed = &crossing{aside: map[ledger.ShardID]bool{}, over: map[ledger.ShardID]bool{},
			concerns: map[ledger.ShardID]bool{}}
		m.crossings[id] = crossed
	}
	crossed.concerns[c.shard] = true
	if t.Verdict == nil {
		crossed.transaction, crossed.aside[c.shard] = t, true
		c.next++
		return true, nil
	}
	crossed.concerns[t.Verdict.Shard] = true
	switch code {
	case ledger.Settled:
		if !m.ready(crossed) {
			return false, nil
		}
		if !crossed.written && len(crossed.transaction.Postings) > 0 {
			if err := m.write(id, crossed.transaction, false); err != nil {
				return false, err
			}
		}
		crossed.written, crossed.over[c.shard] = true, true
	case ledger.Released:
		crossed.refused, crossed.over[c.shard] = true, true
	}
	// The shard that refused has set nothing aside, so nothing ends there.
	if len(crossed.over) == len(crossed.concerns) ||
		crossed.refused && len(crossed.over) == len(crossed.aside) {
		delete(m.crossings, id)
	}
	c.next++
	return true, nil
}

// departed reports whether a transaction is the verdict that an organisation has left a shard.
func departed(t *ledger.Transaction) (uint64, bool) {
	if t.Verdict == nil {
		return 0, false
	}
	return t.Verdict.MoveOf()
}

// ready reports whether all shards whose journals there are have set their parts of a transaction
// aside.
func (m *merged) ready(crossed *crossing) bool {
	for _, c := range m.chains {
		if crossed.concerns[c.shard] && !crossed.aside[c.shard] {
			return false
		}
	}
	return true
}

// journalEntry is a line of a journal's entry. All but the postings is its note.
type journalEntry struct {
	Postings   []ledger.Posting `json:"postings"`
	ID         string           `json:"id,omitempty"`
	Note       string           `json:"note,omitempty"`
	NoteBase64 []byte           `json:"note_base64,omitempty"`
	// Effective is the date that the entry counted for, if it said one.
	Effective ledger.Milliseconds `json:"effective_ms,omitempty"`
}

// write writes the line of a transaction. A bare line has no note, unless it is the first one.
func (m *merged) write(id ledger.Hash, t *ledger.Transaction, bare bool) error {
	entry := journalEntry{Postings: t.Postings}
	if !bare || !m.begun {
		entry.ID = id.String()
		if t.Details != nil {
			entry.Effective = t.Details.Effective
		}
		if utf8.Valid(t.Note) {
			entry.Note = string(t.Note)
		} else {
			entry.NoteBase64 = t.Note
		}
	}
	m.begun = true
	line, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	if len(line) > ledger.MaxNote {
		// The note might be too long with the id beside it. The id leads to it.
		if _, note, err := parseLine(line); err != nil || len(note) > ledger.MaxNote {
			entry.Note, entry.NoteBase64 = "", nil
			if line, err = json.Marshal(entry); err != nil {
				return err
			}
		}
	}
	m.lines.Write(line)
	m.lines.WriteByte('\n')
	return nil
}
