package api_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
	"github.com/ledgerd/ledgerd/node/report"
)

type submissionStream = connect.BidiStreamForClient[ledgerdv1.SubmitStreamRequest,
	ledgerdv1.SubmitStreamResponse]

// opened waits until the node takes bundles on a stream.
func opened(stream *submissionStream) (*submissionStream, error) {
	_ = stream.Send(nil)
	first, err := stream.Receive()
	if err == nil && len(first.GetAnswers()) > 0 {
		err = errors.New("the first message is not empty")
	}
	return stream, err
}

// submissions is a SubmitStream of a bank.
type submissions struct {
	*bank
	*submissionStream
	early []*ledgerdv1.BundleAnswer // received, not asked for yet
}

// submissions opens a stream to a door, by default the bank's.
func (b *bank) submissions(url string, options ...connect.ClientOption) *submissions {
	b.Helper()
	if url == "" {
		url = b.door.URL
	}
	client := ledgerdv1connect.NewLedgerServiceClient(overHTTP2(b.T), url, options...)
	stream, err := opened(client.SubmitStream(b.context()))
	if err != nil {
		b.Fatal(err)
	}
	return &submissions{bank: b, submissionStream: stream}
}

func (s *submissions) send(number uint64, bundle []byte, level ledgerdv1.Level) {
	s.Helper()
	if err := s.Send(&ledgerdv1.SubmitStreamRequest{Number: number, Bundle: bundle,
		Wait: level}); err != nil {
		s.Fatal(err)
	}
}

// next returns the next answer.
func (s *submissions) next() *ledgerdv1.BundleAnswer {
	s.Helper()
	for len(s.early) == 0 {
		message, err := s.Receive()
		if err != nil {
			s.Fatal(err)
		}
		s.early = message.GetAnswers()
	}
	answer := s.early[0]
	s.early = s.early[1:]
	return answer
}

// is checks that the next answer is the given one.
func (s *submissions) is(want *ledgerdv1.BundleAnswer) {
	s.Helper()
	if got := s.next(); !proto.Equal(got, want) {
		s.Fatalf("answer %v\nwant   %v", got, want)
	}
}

// refused checks that the next answer is a refusal.
func (s *submissions) refused(number uint64, code connect.Code, retry bool, reason string) {
	s.Helper()
	got := s.next()
	if got.GetNumber() != number || len(got.GetRuns()) > 0 ||
		got.GetRefusal().GetCode() != uint32(code) || got.GetRefusal().GetRetry() != retry ||
		!strings.Contains(got.GetRefusal().GetReason(), reason) {
		s.Fatalf("answer %v, want refusal %d with %v: %s", got, number, code, reason)
	}
}

// ends checks that the stream has no more answers, and ends with a code; 0: without an error.
func (s *submissions) ends(code connect.Code) error {
	s.Helper()
	message, err := s.Receive()
	if len(s.early) > 0 || message != nil {
		s.Fatalf("a further answer: %v, %v", s.early, message)
	}
	if code == 0 && !errors.Is(err, io.EOF) || code != 0 && connect.CodeOf(err) != code {
		s.Fatalf("the stream ends with %v, want %v", err, code)
	}
	return err
}

func run(count uint32, status *ledgerdv1.TransactionStatus) []*ledgerdv1.StatusRun {
	return []*ledgerdv1.StatusRun{{Count: count, Status: status}}
}

// Over each protocol, the node answers each bundle by its number, with all outcomes of the
// transactions, and ends the stream once all are answered. A refused bundle does not end it.
func TestSubmitStream(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]connect.ClientOption{
		"connect": nil, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()},
		"json": {connect.WithProtoJSON()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, apitest.Options{}, api.Options{})
			s := b.submissions("", options...)
			durable := ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE
			s.send(7, b.sign(transfer("bank:mint", "bank:a", 2), transfer("bank:a", "bank:b", 1),
				transfer("bank:a", "bank:b", 9), transfer("bank:b", "bank:a", 8),
				transfer("bank:a", "bank:b", 1)).Encode(), 0)
			failed := func(index uint32, reason string) *ledgerdv1.StatusRun {
				return &ledgerdv1.StatusRun{Count: 1, Status: &ledgerdv1.TransactionStatus{
					State:  ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED,
					Height: 2, Index: index, ReasonCode: "insufficient_funds", Reason: reason}}
			}
			s.is(&ledgerdv1.BundleAnswer{Number: 7, Runs: []*ledgerdv1.StatusRun{
				{Count: 2, Status: &ledgerdv1.TransactionStatus{State: durable, Height: 2}},
				failed(2, "insufficient funds (posting 1): -9 unit for bank:a"),
				failed(3, "insufficient funds (posting 1): -8 unit for bank:b"),
				{Count: 1, Status: &ledgerdv1.TransactionStatus{State: durable, Height: 2,
					Index: 4}},
			}})
			s.send(8, nil, 0)
			s.refused(8, connect.CodeInvalidArgument, false, "bundle: ")
			forged := b.sign(transfer("bank:mint", "bank:a", 1)).Encode()
			forged[len(forged)-1] ^= 1
			s.send(9, forged, 0)
			s.refused(9, connect.CodePermissionDenied, false, "signature")
			s.send(10, b.sign(transfer("bank:mint", "bank:a", 1)).Encode(), 6)
			s.refused(10, connect.CodeInvalidArgument, false, "level 6")
			bundle := b.sign(transfer("bank:mint", "bank:a", 1),
				transfer("bank:mint", "bank:a", 1))
			s.send(11, bundle.Encode(), ledgerdv1.Level_LEVEL_DURABLE)
			third := &ledgerdv1.TransactionStatus{State: durable, Height: 3}
			s.is(&ledgerdv1.BundleAnswer{Number: 11, Runs: run(2, third)})
			// The same again gets the same outcome. A number may come again, too.
			s.send(11, bundle.Encode(), ledgerdv1.Level_LEVEL_ORDERED)
			s.is(&ledgerdv1.BundleAnswer{Number: 11, Runs: run(2, third)})
			// Their order in the block is not that of this bundle.
			turned, err := ledger.NewBundle(*bundle.Transaction(1), *bundle.Transaction(0))
			must(t, err)
			must(t, turned.Sign("bank", b.key))
			s.send(12, turned.Encode(), ledgerdv1.Level_LEVEL_DURABLE)
			s.is(&ledgerdv1.BundleAnswer{Number: 12, Runs: append(run(1,
				&ledgerdv1.TransactionStatus{State: durable, Height: 3, Index: 1}),
				run(1, third)...)})
			must(t, s.CloseRequest())
			s.ends(0)
		})
	}
}

// TestSubmitStreamOfPackedTransfers: the runs of a packed bundle say what Submit says of each of
// its transfers, whichever fail.
func TestSubmitStreamOfPackedTransfers(t *testing.T) {
	t.Parallel()
	genesis := *ledgertest.OperatedGenesis(1)
	genesis.Version = ledger.PackedVersion
	b := newBank(t, apitest.Options{Genesis: genesis}, api.Options{})
	s := b.submissions("")
	poor := transfer("bank:a", "bank:mint", 100)
	for number, transfers := range [][]ledger.Transaction{
		{transfer("bank:mint", "bank:a", 1), transfer("bank:mint", "bank:a", 2)},
		{poor, transfer("bank:mint", "bank:a", 3)},
		{transfer("bank:mint", "bank:a", 4), poor, poor, transfer("bank:mint", "bank:nobody", 1)},
		{poor},
	} {
		for i := range transfers {
			transfers[i].Postings = slices.Clone(transfers[i].Postings)
		}
		bundle := b.packed(transfers...)
		s.send(uint64(number), bundle.Encode(), ledgerdv1.Level_LEVEL_DURABLE)
		answer := s.next()
		var got []*ledgerdv1.TransactionStatus
		for _, run := range answer.GetRuns() {
			for i := range run.GetCount() {
				each := proto.CloneOf(run.GetStatus())
				each.Index += i
				got = append(got, each)
			}
		}
		want := b.submit(ledgerdv1.Level_LEVEL_DURABLE, bundle).GetTransactions()
		for _, each := range want {
			each.Id, each.IdHex = nil, "" // which the client knows
		}
		if !slices.EqualFunc(got, want, func(a, b *ledgerdv1.TransactionStatus) bool {
			return proto.Equal(a, b)
		}) {
			t.Errorf("bundle %d: %v, want %v", number, answer, want)
		}
	}
	expired := transfer("bank:mint", "bank:a", 1)
	expired.LastValid = 1
	s.send(9, b.packed(expired).Encode(), 0)
	if got := s.next(); got.GetRefusal() == nil {
		t.Errorf("an expired bundle: %v", got)
	}
}

// A bundle is answered when it reaches its own level, whatever comes before it. Several answers
// that are ready come together.
func TestSubmitStreamAnswersWhatIsReady(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{Manual: true}, api.Options{})
	s := b.submissions("")
	s.send(1, b.sign(transfer("bank:mint", "bank:a", 1)).Encode(),
		ledgerdv1.Level_LEVEL_DURABLE)
	s.send(2, b.sign(transfer("bank:mint", "bank:b", 1)).Encode(),
		ledgerdv1.Level_LEVEL_ADMITTED)
	pending := &ledgerdv1.TransactionStatus{
		State: ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING}
	s.is(&ledgerdv1.BundleAnswer{Number: 2, Runs: run(1, pending)})
	// One that waits no longer gets the status of the moment.
	must(t, s.Send(&ledgerdv1.SubmitStreamRequest{Number: 3, WaitMs: 50,
		Bundle: b.sign(transfer("bank:mint", "bank:b", 1)).Encode()}))
	s.is(&ledgerdv1.BundleAnswer{Number: 3, Runs: run(1, pending)})
	b.advance()
	if got := s.next(); got.GetNumber() != 1 || got.GetRuns()[0].GetStatus().GetHeight() != 2 {
		t.Fatal(got)
	}
	must(t, s.CloseRequest())
	s.ends(0)
}

// Each bundle counts as a call: those beyond the rate, or for which the node has no room or no
// memory, are refused one by one, and may be sent again.
func TestSubmitStreamRefusesOverload(t *testing.T) {
	t.Parallel()
	const admitted = ledgerdv1.Level_LEVEL_ADMITTED
	t.Run("pool", func(t *testing.T) {
		t.Parallel()
		b := newBank(t, apitest.Options{}, api.Options{})
		s := b.submissions("")
		bundle := b.sign(transfer("bank:mint", "bank:a", 1)).Encode()
		b.cluster.Node(0).Overload(1)
		s.send(1, bundle, admitted)
		s.refused(1, connect.CodeResourceExhausted, true, "overloaded")
		s.send(2, bundle, admitted)
		if got := s.next(); got.GetRefusal() != nil {
			t.Error(got)
		}
		b.cluster.Node(0).SetMode(report.ModeFollowing, "it follows")
		s.send(3, b.sign(transfer("bank:mint", "bank:a", 1)).Encode(), admitted)
		if got := s.next().GetRefusal(); got.GetCode() != uint32(connect.CodeUnavailable) ||
			!got.GetRetry() {
			t.Error(got)
		}
	})
	t.Run("rate", func(t *testing.T) {
		t.Parallel()
		b := newBank(t, apitest.Options{}, api.Options{CallsPerSecond: 1e-9, CallBurst: 3})
		s := b.submissions("") // the second call after the bank's first
		bundle := b.sign(transfer("bank:mint", "bank:a", 1)).Encode()
		s.send(1, bundle, 0)
		if got := s.next(); got.GetRefusal() != nil {
			t.Error(got)
		}
		for number := range uint64(3) {
			s.send(number, bundle, 0)
			s.refused(number, connect.CodeResourceExhausted, true, "too many calls")
		}
	})
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		b := newBank(t, apitest.Options{}, api.Options{MaxRequestMemory: 1 << 20})
		s := b.submissions("")
		bundle := b.sign(transfer("bank:mint", "bank:a", 1)).Encode()
		for range 3 {
			s.send(300, append(bundle, make([]byte, 400<<10)...), 0)
			s.refused(300, connect.CodeResourceExhausted, true, "no memory")
			s.send(2, bundle, 0)
			if got := s.next(); got.GetNumber() != 2 || got.GetRefusal() != nil {
				t.Error(got)
			}
		}
		must(t, s.CloseRequest())
		s.ends(0)
		b.nothingReserved()
	})
	t.Run("memory of packed bundles", func(t *testing.T) {
		t.Parallel()
		genesis := *ledgertest.OperatedGenesis(1)
		genesis.Version = ledger.PackedVersion
		b := newBank(t, apitest.Options{Genesis: genesis},
			api.Options{MaxRequestMemory: 256 << 10})
		packed := func(count int) *ledger.Bundle {
			transfers := make([]ledger.Transaction, count)
			for i := range transfers {
				to := fmt.Sprintf("bank:%s%04d", strings.Repeat("a", 100), i)
				transfers[i] = transfer("bank:mint", ledger.AccountPath(to), 1)
			}
			return b.packed(transfers...)
		}
		few, many := packed(100), packed(2000)
		s := b.submissions("")
		s.send(1, many.Encode(), 0)
		s.refused(1, connect.CodeResourceExhausted, true, "no memory")
		s.send(2, few.Encode(), 0)
		if got := s.next(); got.GetNumber() != 2 || got.GetRefusal() != nil {
			t.Error(got)
		}
		must(t, s.CloseRequest())
		s.ends(0)
		_, err := b.client.Submit(b.context(),
			connect.NewRequest(&ledgerdv1.SubmitRequest{Bundle: api.BundleToProto(many)}))
		codeIs(t, err, connect.CodeResourceExhausted)
		_, err = b.client.SubmitMany(b.context(), connect.NewRequest(&ledgerdv1.SubmitManyRequest{
			Bundles: []*ledgerdv1.Bundle{api.BundleToProto(few), api.BundleToProto(many)}}))
		codeIs(t, err, connect.CodeResourceExhausted)
		b.submit(ledgerdv1.Level_LEVEL_DURABLE, few)
		b.nothingReserved()
	})
	t.Run("streams", func(t *testing.T) {
		t.Parallel()
		b := newBank(t, apitest.Options{}, api.Options{MaxStreamsPerAddress: 1})
		b.submissions("")
		client := ledgerdv1connect.NewLedgerServiceClient(overHTTP2(t), b.door.URL)
		_, err := opened(client.SubmitStream(b.context()))
		codeIs(t, err, connect.CodeResourceExhausted)
	})
}

// nothingReserved waits until no memory is reserved for requests.
func (b *bank) nothingReserved() {
	b.Helper()
	for deadline := time.Now().Add(patience); b.metric("ledgerd_api_request_bytes") > 0; {
		if time.Now().After(deadline) {
			b.Fatal("memory stays reserved without a request")
		}
		time.Sleep(time.Millisecond)
	}
}

// A server that stops answers what it took, with the statuses of the moment, and ends the stream
// with an error that says to go on elsewhere.
func TestSubmitStreamStops(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{Manual: true}, api.Options{})
	backend := signalling{b.cluster.Node(0), make(chan struct{}, 2)}
	door := apitest.Serve(t, backend, api.Options{})
	s := b.submissions(door.URL)
	s.send(1, b.sign(transfer("bank:mint", "bank:a", 1)).Encode(), 0)
	s.send(2, b.sign(transfer("bank:mint", "bank:a", 1)).Encode(), 0)
	<-backend.waits
	<-backend.waits
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		stopped <- door.Server.Shutdown(ctx)
	}()
	for range 2 {
		if got := s.next().GetRuns(); len(got) != 1 || got[0].GetStatus().GetState() !=
			ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING {
			t.Errorf("answered %v", got)
		}
	}
	failure := (*connect.Error)(nil)
	if !asConnect(s.ends(connect.CodeUnavailable), &failure) ||
		failure.Meta().Get(api.HeaderRetry) != "true" {
		t.Errorf("it ends with %v", failure)
	}
	must(t, <-stopped)
}

// A panic refuses its bundle only.
func TestSubmitStreamPanics(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	door := apitest.Serve(t, panicky{b.cluster.Node(0)},
		api.Options{Logger: slog.New(slog.DiscardHandler)})
	s := b.submissions(door.URL)
	s.send(1, b.sign(ledger.Transaction{Note: []byte("panic")}).Encode(), 0)
	s.refused(1, connect.CodeInternal, false, "internal error")
	s.send(2, b.sign(transfer("bank:mint", "bank:a", 1)).Encode(), 0)
	if got := s.next(); got.GetRefusal() != nil {
		t.Error(got)
	}
}

// panicky panics when it admits a transaction with the note "panic".
type panicky struct{ api.Backend }

func (p panicky) Admit(ctx context.Context, bundles []*ledger.Bundle,
	inOrder bool) []*report.Refusal {
	for _, bundle := range bundles {
		if string(bundle.Transaction(0).Note) == "panic" {
			panic("as the test wants")
		}
	}
	return p.Backend.Admit(ctx, bundles, inOrder)
}

// envelope returns a message of a stream with its prefix.
func envelope(flags byte, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(data))), data...)
}

// raw is a SubmitStream whose bytes a test writes by itself.
type raw struct {
	io.WriteCloser
	answer *http.Response
	cancel context.CancelFunc
}

func (b *bank) raw() *raw {
	b.Helper()
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(b.context())
	b.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, "POST",
		b.door.URL+"/ledgerd.v1.LedgerService/SubmitStream", reader)
	must(b.T, err)
	request.Header.Set("Content-Type", "application/connect+proto")
	client := overHTTP2(b.T)
	client.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{
		MaxReceiveBufferPerStream: 64 << 10, MaxReceiveBufferPerConnection: 64 << 10}
	answer, err := client.Do(request)
	must(b.T, err)
	b.Cleanup(func() { _ = answer.Body.Close() })
	return &raw{WriteCloser: writer, answer: answer, cancel: cancel}
}

// rest reads all messages, and returns the answers and the text of the stream's end.
func (r *raw) rest(t *testing.T) (answers []*ledgerdv1.BundleAnswer, end string) {
	t.Helper()
	data, err := io.ReadAll(r.answer.Body)
	must(t, err)
	for len(data) >= 5 {
		length := 5 + int(binary.BigEndian.Uint32(data[1:]))
		if data[0] != 0 {
			return answers, string(data[5:length])
		}
		message := new(ledgerdv1.SubmitStreamResponse)
		must(t, proto.Unmarshal(data[5:length], message))
		answers, data = append(answers, message.GetAnswers()...), data[length:]
	}
	return answers, "cut off"
}

// A frame that is no request ends the stream, after all bundles before it are answered. It counts
// as an offence.
func TestSubmitStreamMalformed(t *testing.T) {
	t.Parallel()
	good := func(b *bank) []byte {
		message, err := proto.Marshal(&ledgerdv1.SubmitStreamRequest{Number: 1,
			Bundle: b.sign(transfer("bank:mint", "bank:a", 1)).Encode()})
		must(b.T, err)
		return envelope(0, message)
	}
	for name, test := range map[string]struct {
		data     []byte
		end      string
		offences float64
	}{
		"not protobuf":  {envelope(0, []byte{0xff}), `"invalid_argument"`, 1},
		"compressed":    {envelope(1, compressed([]byte{8, 1})), "compress", 1},
		"unknown flags": {envelope(0x40, []byte{8, 1}), "error", 1},
		"cut short":     {envelope(0, make([]byte, 100))[:50], "error", 1},
		"too large":     {[]byte{0, 0xff, 0xff, 0xff, 0xff}, `"resource_exhausted"`, 1},
		"larger than a bundle": {envelope(0, make([]byte, 2*ledger.MaxBundleBytes+1)),
			`"resource_exhausted"`, 1},
		"half a prefix": {[]byte{0, 0}, "error", 0},
		"the end":       {nil, "{}", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, apitest.Options{}, api.Options{})
			r := b.raw()
			go func() {
				_, _ = r.Write(append(good(b), test.data...))
				_ = r.Close()
			}()
			answers, end := r.rest(t)
			if len(answers) != 1 || answers[0].GetRefusal() != nil ||
				!strings.Contains(end, test.end) {
				t.Errorf("%v, %s", answers, end)
			}
			b.nothingReserved()
			if got := b.metric(`ledgerd_api_offences_total{kind="request"}`); got !=
				test.offences {
				t.Errorf("%v offences, want %v", got, test.offences)
			}
		})
	}
}

// A bundle that is larger than a bundle may be is refused alone.
func TestSubmitStreamLargeBundle(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	s := b.submissions("")
	s.send(1, make([]byte, ledger.MaxBundleBytes+1), 0)
	s.refused(1, connect.CodeInvalidArgument, false, "bundle")
	s.send(2, b.sign(transfer("bank:mint", "bank:a", 1)).Encode(), 0)
	if got := s.next(); got.GetNumber() != 2 || got.GetRefusal() != nil {
		t.Error(got)
	}
}

// Each of many empty bundles is refused, and nothing stays of them.
func TestSubmitStreamOfNothing(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{CallsPerSecond: -1})
	r := b.raw()
	const count = 20_000
	go func() {
		_, _ = r.Write(bytes.Repeat(envelope(0, nil), count))
		_ = r.Close()
	}()
	answers, end := r.rest(t)
	if len(answers) != count || end != "{}" {
		t.Errorf("%d answers, %s", len(answers), end)
	}
	for _, answer := range answers {
		if answer.GetRefusal().GetCode() != uint32(connect.CodeInvalidArgument) {
			t.Fatal(answer)
		}
	}
	b.nothingReserved()
}

// crowded counts the calls of Wait under way.
type crowded struct {
	api.Backend
	arrived   chan struct{}
	now, most *atomic.Int32
}

func (c crowded) Wait(ctx context.Context, ids []ledger.Hash,
	level report.Level) ([]report.Status, error) {
	now := c.now.Add(1)
	defer c.now.Add(-1)
	for most := c.most.Load(); now > most && !c.most.CompareAndSwap(most, now); {
		most = c.most.Load()
	}
	c.arrived <- struct{}{}
	return c.Backend.Wait(ctx, ids, level)
}

// The node takes no more bundles than it may until it has answered some, by their number and by
// their bytes.
func TestSubmitStreamIsBounded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ count, transactions int }{
		"bundles": {100, 1}, "bytes": {30, 200}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, apitest.Options{Manual: true}, api.Options{})
			backend := crowded{Backend: b.cluster.Node(0),
				arrived: make(chan struct{}, test.count),
				now:     new(atomic.Int32), most: new(atomic.Int32)}
			s := b.submissions(apitest.Serve(t, backend, api.Options{}).URL)
			var bundles [][]byte
			for range test.count {
				made := make([]ledger.Transaction, test.transactions)
				for i := range made {
					made[i] = transfer("bank:mint", "bank:a", 1)
					made[i].Note = bytes.Repeat([]byte("n"), 1<<10)
				}
				bundles = append(bundles, b.sign(made...).Encode())
			}
			// The last one that is taken may go beyond the bound of bytes.
			bound := min(64, (4<<20+len(bundles[0])-1)/len(bundles[0]))
			var sending sync.WaitGroup
			sending.Go(func() {
				for number, bundle := range bundles {
					if err := s.Send(&ledgerdv1.SubmitStreamRequest{Number: uint64(number),
						Bundle: bundle}); err != nil {
						t.Error(err)
						return
					}
				}
			})
			for range bound {
				<-backend.arrived
			}
			for range 50 { // time in which the node might take more
				b.metric("ledgerd_api_request_bytes")
			}
			for answered := 0; answered < test.count; {
				b.advance()
				message, err := s.Receive()
				must(t, err)
				answered += len(message.GetAnswers())
			}
			sending.Wait()
			if most := backend.most.Load(); int(most) != bound {
				t.Errorf("%d bundles were under way, want %d", most, bound)
			}
		})
	}
}

// The node holds a bounded number of bundles for a client that does not read its answers, and then
// ends the stream.
func TestSubmitStreamThatReadsNothing(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{CallsPerSecond: -1,
		MaxStuckTime: time.Second})
	r := b.raw()
	long := envelope(0, append([]byte{0x12, 0xff, 0x7f}, make([]byte, 1<<14-1)...))
	most := 0.0
	deadline := time.Now().Add(patience)
	for sent := 0; ; sent++ {
		if _, err := r.Write(long); err != nil {
			break
		}
		if sent%64 == 0 {
			most = max(most, b.metric("ledgerd_api_request_bytes"))
		}
		if time.Now().After(deadline) {
			t.Fatal("it is never cut off")
		}
	}
	if most > 16<<20 {
		t.Errorf("%v bytes were reserved", most)
	}
	b.nothingReserved()
}

// A stream without bundles ends without an error. One whose bundle does not arrive in time is cut
// off.
func TestSubmitStreamIsIdleOrSlow(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{MaxIdleTime: 300 * time.Millisecond})
	s := b.submissions("")
	s.send(1, b.sign(transfer("bank:mint", "bank:a", 1)).Encode(), 0)
	if got := s.next(); got.GetRefusal() != nil {
		t.Error(got)
	}
	s.ends(0)

	slow := newBank(t, apitest.Options{}, api.Options{MaxBodyPatience: 300 * time.Millisecond})
	idle := slow.submissions("")
	r := slow.raw()
	_, err := r.Write(envelope(0, make([]byte, 100))[:50])
	must(t, err)
	if answers, end := r.rest(t); len(answers) > 0 || !strings.Contains(end,
		`"deadline_exceeded"`) {
		t.Errorf("%v, %s", answers, end)
	}
	// A stream may rest for longer than a request may take.
	idle.send(1, slow.sign(transfer("bank:mint", "bank:a", 1)).Encode(), 0)
	if got := idle.next(); got.GetRefusal() != nil {
		t.Error(got)
	}
}

// Over HTTP/1 the call says what it needs.
func TestSubmitStreamOverHTTP1(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	if _, err := opened(b.client.SubmitStream(b.context())); err == nil {
		t.Error("a stream in both directions over HTTP/1")
	}
}

// A bundle of a stream counts as a Submit.
func TestSubmitStreamCounts(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	const counted = `ledgerd_api_calls_total{code="ok",method="Submit"}`
	before := b.metric(counted)
	s := b.submissions("")
	for number := range uint64(3) {
		s.send(number, b.sign(transfer("bank:mint", "bank:a", 1)).Encode(), 0)
		s.next()
	}
	if got := b.metric(counted); got != before+3 {
		t.Errorf("%v calls were counted, want %v", got, before+3)
	}
}
