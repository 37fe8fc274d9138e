package catchup

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/rdmanet"
)

func TestCertificatesAreFetched(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	source, genesis := newChain(t, 9, 9, 0), ledgertest.OperatedGenesis(3)
	for _, height := range []int{2, 5, 6, 9} {
		source.certificates = append(source.certificates, ledgertest.Certificate(genesis, 0,
			source.blocks[height], 0, 1, 2))
	}
	disordered := newChain(t, 9, 9, 0)
	disordered.certificates = append(disordered.certificates, source.certificates[2],
		source.certificates[1])
	f.exchange("a", source, nil)
	f.exchange("b", disordered, nil)
	x := f.exchange("c", source, func(c *Config) { c.PieceBytes = 3 * PieceBytesMin / 2 })
	fetched := map[ledger.Height]bool{}
	for above := ledger.Height(2); above < 9; {
		certificates, err := x.FetchCertificates(t.Context(), "a", above)
		if err != nil || len(certificates) == 0 {
			t.Fatalf("above %d: %v, %v", above, certificates, err)
		}
		for _, c := range certificates {
			above = c.Height
			fetched[above] = true
		}
	}
	if len(fetched) != 3 || !fetched[5] || !fetched[6] || !fetched[9] {
		t.Errorf("fetched %v", fetched)
	}
	if certificates, err := x.FetchCertificates(t.Context(), "a", 9); err != nil ||
		len(certificates) != 0 {
		t.Errorf("above the last one: %v, %v", certificates, err)
	}
	for peer, want := range map[rdmanet.PeerID]error{"b": errAnswer,
		"stranger": rdmanet.ErrNotMember} {
		if _, err := x.FetchCertificates(t.Context(), peer, 2); !errors.Is(err, want) {
			t.Errorf("%s: %v", peer, err)
		}
	}
}

// TestPieceFullOfCertificates serves more certificates than fit in a piece, with their lengths.
func TestPieceFullOfCertificates(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	source, genesis := newChain(t, 1, 1, 0), ledgertest.OperatedGenesis(1)
	for height := range ledger.Height(2000) {
		source.certificates = append(source.certificates, ledger.Certify([]ledger.Statement{
			{Height: height + 1, Hash: genesis.Hash()},
			{Height: height + 1, Hash: genesis.Hash(), Seal: ledger.Seal{Member: 1}}}))
	}
	last := source.certificates[len(source.certificates)-1].Height
	f.exchange("a", source, nil)
	x := f.exchange("b", source, func(c *Config) {
		c.PieceBlocks, c.PieceBytes = 1, certificatesBytesMax/2
	})
	for above := ledger.Height(0); above < last; {
		certificates, err := x.FetchCertificates(t.Context(), "a", above)
		if err != nil || len(certificates) == 0 {
			t.Fatalf("above %d: %d, %v", above, len(certificates), err)
		}
		above = certificates[len(certificates)-1].Height
	}
}

func FuzzDecodeCertificates(f *testing.F) {
	c := ledgertest.Certificate(ledgertest.OperatedGenesis(2), 0,
		ledgertest.Block(ledgertest.OperatedGenesis(2)), 0, 1).Encode()
	f.Add(append(binary.AppendUvarint(nil, uint64(len(c))), c...))
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, data []byte) {
		certificates, err := decodeCertificates(data)
		if err != nil {
			return
		}
		size := 0
		for _, c := range certificates {
			size += len(c.Encode())
		}
		if size > len(data) {
			t.Fatalf("%d bytes hold %d bytes of certificates", len(data), size)
		}
	})
}

func FuzzDecodeCertificatesRequest(f *testing.F) {
	f.Add(certificatesRequest{above: 7, bytes: PieceBytesMin}.encode())
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := decodeCertificatesRequest(data); err == nil && !bytes.Equal(r.encode(), data) {
			t.Fatalf("%x was taken and means %x", data, r.encode())
		}
	})
}
