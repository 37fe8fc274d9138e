//go:build linux

package torture

import (
	"bufio"
	"compress/gzip"
	"errors"
	"flag"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var wholeFlag = flag.Bool("whole", false, "import the whole of the real input into several "+
	"shards, and not its beginning")

// bookLines is the number of lines of the real input that are imported. Its first entry with a
// spending is among the first 200.
const bookLines = 2_000

// The test's book. The nodes of shard s begin with number s*bookNodes.
const bookShards, bookNodes = 4, 3

// newBook makes a ledger of several shards, and starts its nodes.
func newBook(t *testing.T) *shard {
	t.Helper()
	const nodes = bookShards * bookNodes
	s := newHomes(t, nodes, nil, withEngine(*engineFlag, "--shards", strconv.Itoa(bookShards),
		"--nodes", strconv.Itoa(bookNodes))...)
	s.start(s.all()...)
	for shard := range bookShards {
		s.ordering(membersOf(shard)...)
	}
	return s
}

// membersOf returns the nodes of a shard.
func membersOf(shard int) []int {
	which := make([]int, bookNodes)
	for i := range which {
		which[i] = shard*bookNodes + i
	}
	return which
}

// readBeginning returns the real input, or the beginning of it, or the excerpt if it is missing.
func readBeginning(t *testing.T) input {
	t.Helper()
	switch _, err := os.Stat(realInput); {
	case errors.Is(err, fs.ErrNotExist):
		t.Logf("%s is not there: the committed excerpt has to do", realInput)
		return readInputOf(t, testnetInput)
	case *wholeFlag:
		return readInputOf(t, realInput)
	}
	return beginningOf(t, realInput, bookLines)
}

// beginningOf returns the first lines of a compressed input.
func beginningOf(t *testing.T, path string, count int) input {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	beginning, lines := filepath.Join(t.TempDir(), "beginning.jsonl"), bufio.NewReader(unzipped)
	var text []byte
	for range count {
		line, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		text = append(text, line...)
	}
	if err := os.WriteFile(beginning, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return readInputOf(t, beginning)
}

// settled waits until the nodes of every shard hold the same chain, in which nothing waits for
// another shard. It returns the chains' heights and their total number of transactions.
func (s *shard) settled() (heights [bookShards]uint64, total uint64) {
	s.t.Helper()
	for again := true; again; {
		again, total = false, 0
		for shard := range bookShards {
			height := s.same(membersOf(shard)...)
			again = again || height != heights[shard]
			heights[shard] = height
			s.eventually("nothing waits for another shard", func() error {
				state, err := s.state(shard * bookNodes)
				if err == nil && state.GetPendingCrossings() > 0 {
					err = errors.New("something does")
				}
				return err
			})
			cluster, err := s.nodes[shard*bookNodes].Cluster(s.t.Context())
			if err != nil {
				s.t.Fatal(err)
			}
			total += cluster.GetTransactionsTotal()
		}
	}
	return heights, total
}

// TestImportOverShards imports real input into four shards of three processes while nodes and a
// whole shard are killed. The accounts are spread over eight organisations.
func TestImportOverShards(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes long")
	}
	in := readBeginning(t)
	s := newBook(t)
	folder := t.TempDir()
	flags := []string{"--org", "chain", "--orgs", "8"}
	run := s.startImportWith(flags, in.path, folder, 0, bookNodes)

	s.reached(uint64(in.lines/8), membersOf(3)[0])
	victims := []int{1, 4, 7, 10}
	s.kill(victims...)
	s.reached(uint64(in.lines/4), membersOf(3)[0])
	s.start(victims...)
	s.kill(membersOf(2)...)
	s.start(membersOf(2)...)
	run.wait(t, in.lines)
	for shard := range bookShards {
		s.ordering(membersOf(shard)...)
	}
	heights, total := s.settled()
	t.Logf("the chains end with blocks %v and have %d transactions", heights, total)
	for shard := range bookShards {
		_, balances := s.exports(membersOf(shard)[:2]...)
		in.matches(t, balances) // each node exports the balances of all shards
	}

	// Running the same import again, from another machine with the same key, adds nothing.
	if err := os.RemoveAll(filepath.Join(folder, "state")); err != nil {
		t.Fatal(err)
	}
	s.startImportWith(flags, in.path, folder, 2*bookNodes).wait(t, in.lines)
	if again, transactions := s.settled(); again != heights || transactions != total {
		t.Errorf("the chains went on from %v to %v, with %d transactions and not %d", heights,
			again, transactions, total)
	}
	s.stop(s.all()...)
	words := []string{"verify", "--book"}
	for _, i := range []int{0, bookNodes, 2*bookNodes + 1, 3*bookNodes + 1} {
		words = append(words, "--home", s.homes[i].Dir)
	}
	if o := ledgerdWith(t, s.environment, words...); o.status != 0 ||
		!strings.Contains(o.out, "no transaction waits for another shard") {
		t.Errorf("verify of the book: exit status %d\n%s%s", o.status, o.out, o.errs)
	}
}
