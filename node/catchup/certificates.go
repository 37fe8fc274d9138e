package catchup

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/rdmanet"
)

const (
	certificatesRequestSize = 8 + 4
	// certificatesBytesMax bounds a piece of certificates, because the caller verifies all of them
	// at once.
	certificatesBytesMax = 256 << 10
)

// certificatesRequest asks for the certificates of blocks above a height, as many as fit in a
// number of bytes.
type certificatesRequest struct {
	above ledger.Height
	bytes uint32
}

func (r certificatesRequest) encode() []byte {
	to := binary.LittleEndian.AppendUint64(make([]byte, 0, certificatesRequestSize),
		uint64(r.above))
	return binary.LittleEndian.AppendUint32(to, r.bytes)
}

func decodeCertificatesRequest(data []byte) (certificatesRequest, error) {
	if len(data) != certificatesRequestSize {
		return certificatesRequest{}, fmt.Errorf("%w: a request for certificates of %d bytes",
			errMessage, len(data))
	}
	r := certificatesRequest{above: ledger.Height(binary.LittleEndian.Uint64(data)),
		bytes: binary.LittleEndian.Uint32(data[8:])}
	if r.bytes < PieceBytesMin || r.bytes > PieceBytesMax {
		return certificatesRequest{}, fmt.Errorf("%w: a piece of %d bytes", errMessage, r.bytes)
	}
	return r, nil
}

// prepareCertificates returns the certificates as one part: each after its length (uvarint).
func (x *Exchange) prepareCertificates(r certificatesRequest) answer {
	chain := x.chain()
	if chain == nil {
		return answer{status: statusUnavailable, reason: reasonOf(errNoChain)}
	}
	a := answer{head: chain.AppendedHeight()}
	bytesMax := int(min(r.bytes, x.piece.bytes))
	certificates, err := chain.Certificates(r.above, bytesMax)
	if err != nil {
		x.logger.Error("the certificates that a peer asked for cannot be read", "above", r.above,
			"error", err)
		return answer{status: statusUnavailable, reason: reasonOf(err)}
	}
	for _, c := range certificates {
		encoded := c.Encode()
		if len(a.part) > 0 && len(a.part)+binary.MaxVarintLen32+len(encoded) > bytesMax {
			break
		}
		a.part = append(binary.AppendUvarint(a.part, uint64(len(encoded))), encoded...)
	}
	if len(a.part) == 0 {
		a.status = statusBehind
		return a
	}
	a.status, a.total = statusPart, uint64(len(a.part))
	return a
}

func decodeCertificates(data []byte) (certificates []*ledger.Certificate, err error) {
	for len(data) > 0 {
		size, length := binary.Uvarint(data)
		if length <= 0 || size > uint64(len(data)-length) {
			return nil, fmt.Errorf("%w: it ends in a certificate", errMessage)
		}
		c, err := ledger.DecodeCertificate(data[length : length+int(size)])
		if err != nil {
			return nil, err
		}
		certificates, data = append(certificates, c), data[length+int(size):]
	}
	return certificates, nil
}

// FetchCertificates asks one peer for certificates of blocks above a height, in ascending order, as
// many as fit in a piece. They are decoded and not verified. There are none if the peer has none.
// Errors are those of FetchContent.
func (x *Exchange) FetchCertificates(ctx context.Context, from rdmanet.PeerID,
	above ledger.Height) ([]*ledger.Certificate, error) {
	to := x.peer(from)
	if to == nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnavailable, from, rdmanet.ErrNotMember)
	}
	q, err := x.ask(ctx, to, kindCertificates, certificatesRequest{above: above,
		bytes: min(x.piece.bytes, certificatesBytesMax)}.encode())
	if err != nil {
		return nil, err
	}
	defer q.close()
	a, err := q.first(ctx)
	switch {
	case err != nil:
		return nil, err
	case a.status == statusBehind:
		return nil, nil
	case a.status == statusBusy:
		return nil, unavailable(from, errBusy)
	case a.status == statusUnavailable:
		return nil, unavailable(from, fmt.Errorf("it says %q", a.reason))
	case a.status != statusPart || a.offset != 0 || uint64(len(a.part)) != a.total:
		return nil, unavailable(from, fmt.Errorf("%w: certificates at %d of %d", errAnswer,
			a.offset, a.total))
	}
	certificates, err := decodeCertificates(a.part)
	if err != nil {
		return nil, unavailable(from, fmt.Errorf("%w: %w", errAnswer, err))
	}
	for i, c := range certificates {
		if c.Height <= above || i > 0 && c.Height <= certificates[i-1].Height {
			return nil, unavailable(from, fmt.Errorf("%w: the certificate of block %d out of order",
				errAnswer, c.Height))
		}
	}
	return certificates, nil
}
