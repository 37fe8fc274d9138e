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

// savedProgress is the progress file: the part of the source that an earlier run knows to be in the
// ledger.
type savedProgress struct {
	Version      int                     `json:"version"`
	Genesis      ledger.Hash             `json:"genesis"`
	Organisation ledger.OrganisationName `json:"organisation"`
	// Organisations is the number of organisations that the accounts are spread over, 0 for one.
	Organisations int      `json:"organisations,omitempty"`
	Stream        uint64   `json:"stream"`
	Issuers       []string `json:"issuers,omitempty"`
	// Line is the last line such that it and all lines before it are over. Prefix is the SHA-256
	// over these lines, each with a newline.
	Line   uint64      `json:"line"`
	Prefix ledger.Hash `json:"prefix"`
	// LastID is the last transaction among them. Last holds the last ones by the home shard of
	// their signers, if there are several shards.
	LastID   ledger.Hash                    `json:"last_id"`
	Last     map[ledger.ShardID]ledger.Hash `json:"last,omitempty"`
	Imported uint64                         `json:"imported"`
	Failed   uint64                         `json:"failed"`
	Failures []LineFailure                  `json:"failures,omitempty"`
}

func progressFile(folder string, of *savedProgress) string {
	return filepath.Join(folder, fmt.Sprintf("import-%s-%016x.json", of.Genesis.String()[:16],
		of.Stream))
}

// loadProgress reads a progress file. A file that is missing, damaged or of another import counts
// as none, as correctness does not depend on it. A file of the same import with another number of
// organisations is ErrOrganisations.
func loadProgress(path string, of *savedProgress) (*savedProgress, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil
	}
	saved := new(savedProgress)
	if json.Unmarshal(text, saved) != nil || saved.Version != progressVersion ||
		saved.Genesis != of.Genesis ||
		saved.Organisation != of.Organisation || saved.Stream != of.Stream || saved.Line == 0 ||
		saved.LastID.IsZero() {
		return nil, nil
	}
	if saved.Organisations != of.Organisations {
		return nil, fmt.Errorf("%w: this file with --orgs %d, as %s says; now it is --orgs %d: "+
			"use the earlier number, or another organisation", ErrOrganisations,
			max(saved.Organisations, 1), path, max(of.Organisations, 1))
	}
	if !equalNames(saved.Issuers, of.Issuers) {
		return nil, nil
	}
	return saved, nil
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

// save replaces the progress file atomically.
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
		if removed := os.Remove(draft.Name()); removed != nil &&
			!errors.Is(removed, fs.ErrNotExist) {
			err = errors.Join(err, removed)
		}
		return fmt.Errorf("importer: keeping the progress: %w", err)
	}
	return nil
}
