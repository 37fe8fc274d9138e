package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ledgerd/ledgerd/ledger"
)

const progressVersion = 1

// savedProgress is the progress file: what an earlier run knows to be in the ledger.
type savedProgress struct {
	Version      int                     `json:"version"`
	Genesis      ledger.Hash             `json:"genesis"`
	Organisation ledger.OrganisationName `json:"organisation"`
	Stream       uint64                  `json:"stream"`
	Issuers      []string                `json:"issuers,omitempty"`
	// Line is the last line of those that are all acknowledged; Prefix is the SHA-256 over them, each with a newline.
	Line   uint64      `json:"line"`
	Prefix ledger.Hash `json:"prefix"`
	// LastID is the last transaction among them.
	LastID   ledger.Hash   `json:"last_id"`
	Imported uint64        `json:"imported"`
	Failed   uint64        `json:"failed"`
	Failures []LineFailure `json:"failures,omitempty"`
}

func progressFile(folder string, builder *lineBuilder) string {
	return filepath.Join(folder, fmt.Sprintf("import-%s-%016x.json", builder.genesis.String()[:16], builder.stream))
}

// loadProgress reads a progress file. One that is missing, damaged or of something else is none: correctness does not rest on it.
func loadProgress(path string, builder *lineBuilder, issuers []string) *savedProgress {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	saved := new(savedProgress)
	if json.Unmarshal(text, saved) != nil || saved.Version != progressVersion || saved.Genesis != builder.genesis ||
		saved.Organisation != builder.organisation || saved.Stream != builder.stream || saved.Line == 0 || saved.LastID.IsZero() ||
		!equalNames(saved.Issuers, issuers) {
		return nil
	}
	return saved
}

func equalNames(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// save replaces the progress file at once.
func (p *savedProgress) save(path string) error {
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("importer: keeping the progress: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("importer: keeping the progress: %w", err)
	}
	draft, err := os.CreateTemp(filepath.Dir(path), ".import-*")
	if err != nil {
		return fmt.Errorf("importer: keeping the progress: %w", err)
	}
	_, err = draft.Write(text)
	if err = errors.Join(err, draft.Close()); err == nil {
		err = os.Rename(draft.Name(), path)
	}
	if err != nil {
		if removed := os.Remove(draft.Name()); removed != nil && !errors.Is(removed, fs.ErrNotExist) {
			err = errors.Join(err, removed)
		}
		return fmt.Errorf("importer: keeping the progress: %w", err)
	}
	return nil
}
