package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/book"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/home"
)

// bookReport is what ledgerd verify --book --json prints.
type bookReport struct {
	OK bool `json:"ok"`
	// Shards are the heads that make the cut, by shard.
	Shards []bookShard `json:"shards"`
	// Accounts and Assets are those of all shards.
	Accounts int `json:"accounts"`
	Assets   int `json:"assets"`
	// Carried and Verdicts are how many entries of streams and verdicts were compared with the
	// chain that they came from.
	Carried  uint64 `json:"carried"`
	Verdicts uint64 `json:"verdicts"`
	// Waiting is how many transactions wait in a shard for others, and OnTheWay how many of them
	// took effect in another shard already.
	Waiting  int `json:"waiting"`
	OnTheWay int `json:"on_the_way"`
	// Lost are the shards that the operators settled with, and LostAmounts what they had of the
	// transactions that took effect in others. The amounts add up to zero together with these.
	Lost        []ledger.ShardID            `json:"lost,omitempty"`
	LostAmounts map[ledger.AssetName]string `json:"lost_amounts,omitempty"`
	// BadShard and FirstBadBlock are where something is wrong; null if that is not one place.
	BadShard      *ledger.ShardID `json:"bad_shard"`
	FirstBadBlock *ledger.Height  `json:"first_bad_block"`
	Reason        string          `json:"reason"`
}

// bookShard is the store of one shard that is part of the cut.
type bookShard struct {
	Shard        ledger.ShardID `json:"shard"`
	Home         string         `json:"home"`
	Height       ledger.Height  `json:"height"`
	Hash         ledger.Hash    `json:"hash"`
	Transactions uint64         `json:"transactions"`
	// Certificates is the number of blocks with a certificate, CertifiedHeight the highest of them.
	Certificates    int           `json:"certificates"`
	CertifiedHeight ledger.Height `json:"certified_height"`
}

// verifiedHome is a home whose store was verified by itself.
type verifiedHome struct {
	*home.Home
	found store.Verified
}

// bookVerifier verifies the homes of a book's nodes: each by itself, and then all shards together.
type bookVerifier struct {
	ctx         context.Context
	out, errOut io.Writer
	asJSON      bool
	// shards has the homes of each shard, those with the highest head first.
	shards [][]verifiedHome
}

// verifyBook verifies all shards of a book. Each folder is the home of a node, or has such homes in
// it.
func (v *bookVerifier) verifyBook(folders []string) error {
	homes, err := homesOfBook(folders)
	if err != nil {
		return err
	}
	begun := time.Now()
	for _, shard := range homes {
		var verified []verifiedHome
		for _, h := range shard {
			progress, end := verifyProgress(v.errOut)
			found, err := store.Verify(v.ctx, h.Data(), h.Genesis, storeOptions(h), progress)
			end()
			if damage := (*store.DamageError)(nil); errors.As(err, &damage) {
				return v.wrong(bookReport{BadShard: &h.Genesis.Shard,
					FirstBadBlock: &damage.Height, Reason: fmt.Sprintf("%s: %s", h.Dir,
						damage.Reason)}, err)
			}
			if err != nil {
				return explainStore(h, err)
			}
			verified = append(verified, verifiedHome{h, found})
		}
		slices.SortStableFunc(verified, func(a, b verifiedHome) int {
			return cmp.Compare(b.found.Height, a.found.Height)
		})
		v.shards = append(v.shards, verified)
	}
	report, err := v.compare()
	if err != nil {
		return v.judged(err)
	}
	if v.asJSON {
		return writeJSONLine(v.out, report)
	}
	return v.tell(&report, time.Since(begun))
}

// compare opens the highest store of each shard, and compares it with the shard's other ones and
// with those of the other shards.
func (v *bookVerifier) compare() (report bookReport, err error) {
	var stores []*store.Store
	defer func() {
		for _, each := range stores {
			if each != nil {
				err = errors.Join(err, each.Close())
			}
		}
	}()
	for _, shard := range v.shards {
		if len(shard) == 0 {
			stores = append(stores, nil)
			continue
		}
		highest := shard[0]
		opened, err := store.Open(highest.Data(), highest.Genesis, storeOptions(highest.Home))
		if err != nil {
			return report, explainStore(highest.Home, err)
		}
		stores = append(stores, opened)
		report.Shards = append(report.Shards, bookShard{Shard: highest.Genesis.Shard,
			Home: highest.Dir, Height: highest.found.Height, Hash: highest.found.Hash,
			Transactions: highest.found.Total, Certificates: highest.found.Certificates,
			CertifiedHeight: highest.found.Certified})
		for _, other := range shard[1:] {
			_, hash, err := opened.Header(other.found.Height)
			if err != nil {
				return report, err
			}
			if hash != other.found.Hash {
				return report, &book.Contradiction{Shard: &highest.Genesis.Shard,
					Height: other.found.Height, Reason: fmt.Sprintf("%s and %s have different "+
						"blocks of this height", highest.Dir, other.Dir)}
			}
		}
	}
	for shard, opened := range stores {
		if opened == nil && !slices.ContainsFunc(stores, func(other *store.Store) bool {
			return other != nil && other.Lost(ledger.ShardID(shard))
		}) {
			return report, noHomeOf(shard)
		}
	}
	progress, end := verifyProgress(v.errOut)
	defer end()
	found, err := book.Check(v.ctx, stores, func(_ ledger.ShardID, height, head ledger.Height) {
		if progress != nil {
			progress(height, head)
		}
	})
	report.OK, report.Accounts, report.Assets = err == nil, found.Accounts, found.Assets
	report.Carried, report.Verdicts = found.Carried, found.Verdicts
	report.Waiting, report.OnTheWay = found.Waiting, found.OnTheWay
	report.Lost, report.LostAmounts = found.Lost, found.LostAmounts
	return report, err
}

// judged prints what is wrong with a book, if err says that.
func (v *bookVerifier) judged(err error) error {
	found := (*book.Contradiction)(nil)
	switch {
	case errors.As(err, &found):
		report := bookReport{BadShard: found.Shard, Reason: found.Reason}
		if found.Height > 0 {
			report.FirstBadBlock = &found.Height
		}
		return v.wrong(report, err)
	case errors.Is(err, book.ErrCut):
		return v.wrong(bookReport{Reason: err.Error()}, err)
	case errors.Is(err, book.ErrStores):
		return fmt.Errorf("%w: name the home of a node of each shard with --home", err)
	}
	return err
}

// wrong prints a report of what is wrong, and returns the error as one that was reported.
func (v *bookVerifier) wrong(report bookReport, err error) error {
	if v.asJSON {
		if failed := writeJSONLine(v.out, report); failed != nil {
			return failed
		}
		return &reportedError{err}
	}
	where := "the book is wrong"
	switch {
	case report.BadShard != nil && report.FirstBadBlock != nil:
		where = fmt.Sprintf("wrong: shard %d, block %d", *report.BadShard, *report.FirstBadBlock)
	case errors.Is(err, book.ErrCut):
		where = "cannot tell"
	}
	if _, failed := fmt.Fprintf(v.out, "%s: %s\n", where, report.Reason); failed != nil {
		return failed
	}
	return &reportedError{err}
}

// tell prints that all is well.
func (v *bookVerifier) tell(report *bookReport, took time.Duration) error {
	for i := range report.Shards {
		each := &report.Shards[i]
		if _, err := fmt.Fprintf(v.out, "shard %d  %d blocks, %d transactions, head %s, %s\n",
			each.Shard, each.Height, each.Transactions, each.Hash, each.Home); err != nil {
			return err
		}
	}
	waiting := "no transaction waits for another shard"
	if report.Waiting > 0 {
		waiting = fmt.Sprintf("%d wait for another shard, of which %d took effect there already",
			report.Waiting, report.OnTheWay)
	}
	if err := v.tellLost(report); err != nil {
		return err
	}
	_, err := fmt.Fprintf(v.out, "all is well: each asset adds up to zero (%s in %s); what the "+
		"shards received from each other is right (%s, %d from above); %s; checked in %.1f s\n",
		plural(report.Assets, "asset"), plural(report.Accounts, "account"),
		plural(int(report.Verdicts), "verdict"), report.Carried, waiting, took.Seconds())
	return err
}

// tellLost prints which shards are left out, and what went with them.
func (v *bookVerifier) tellLost(report *bookReport) error {
	if len(report.Lost) == 0 {
		return nil
	}
	amounts := "nothing that the others gave"
	var parts []string
	for _, asset := range slices.Sorted(maps.Keys(report.LostAmounts)) {
		parts = append(parts, fmt.Sprintf("%s %s", report.LostAmounts[asset], asset))
	}
	if len(parts) > 0 {
		amounts = strings.Join(parts, ", ")
	}
	_, err := fmt.Fprintf(v.out, "left out: shards %v, with which the operators settled; lost "+
		"with them: %s\n", report.Lost, amounts)
	return err
}

// homesOfBook returns the homes in these folders, by shard. A shard that is lost may have none.
func homesOfBook(folders []string) ([][]*home.Home, error) {
	if len(folders) == 0 {
		return nil, usagef("the homes are missing: name the folder that has them, for example " +
			"`ledgerd verify --book net`, or each with --home")
	}
	var shards [][]*home.Home
	var genesis *ledger.Genesis
	for _, folder := range folders {
		found, err := homesIn(folder)
		if err != nil {
			return nil, err
		}
		for _, h := range found {
			if genesis == nil {
				genesis = h.Genesis
			}
			for len(shards) < h.Genesis.BookShards() {
				shards = append(shards, nil)
			}
			if h.Genesis.Book() != genesis.Book() {
				return nil, fmt.Errorf("%s is the home of a node of another book, %s: name the "+
					"homes of one book", h.Dir, h.Genesis.Book())
			}
			shards[h.Genesis.Shard] = append(shards[h.Genesis.Shard], h)
		}
	}
	if len(shards) == 0 {
		return nil, fmt.Errorf("%s has no homes of nodes with blocks", folders[0])
	}
	return shards, nil
}

func noHomeOf(shard int) error {
	return fmt.Errorf("there is no home of shard %d with blocks: name the home of one of its "+
		"nodes with --home", shard)
}

// homesIn returns the home in a folder, or the homes in the folders in it. Of these it leaves out
// those of nodes that never ran.
func homesIn(folder string) ([]*home.Home, error) {
	if _, err := os.Stat(filepath.Join(folder, home.ConfigFile)); err == nil {
		h, err := home.Load(folder)
		if err == nil {
			err = hasData(h)
		}
		return []*home.Home{h}, err
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var homes []*home.Home
	for _, entry := range entries {
		dir := filepath.Join(folder, entry.Name())
		if _, err := os.Stat(filepath.Join(dir, home.ConfigFile)); err != nil {
			continue
		}
		h, err := home.Load(dir)
		if errors.Is(err, home.ErrNotAdmitted) || err == nil && hasData(h) != nil {
			continue
		}
		if err != nil {
			return nil, err
		}
		homes = append(homes, h)
	}
	if len(homes) == 0 {
		return nil, fmt.Errorf("%s has no homes of nodes with blocks: name the folder of a test "+
			"network, or the homes with --home", folder)
	}
	return homes, nil
}
