package abci

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"
)

// moment and the others are what the vectors were made with.
var (
	testTime   = time.Date(2026, 1, 31, 12, 0, 0, 5e6, time.UTC)
	testHash   = bytes.Repeat([]byte{9}, 32)
	testParams = &ConsensusParams{Block: &BlockParams{MaxBytes: 1 << 20, MaxGas: -1},
		Evidence:  &EvidenceParams{MaxAgeBlocks: 7, MaxAge: 48*time.Hour + 5, MaxBytes: 9},
		Validator: &ValidatorParams{Types: []string{"ed25519", "secp256k1"}},
		Version:   &VersionParams{App: 3}, ABCI: &ABCIParams{}}
	testValidators = []ValidatorUpdate{
		{Key: PublicKey{Ed25519: bytes.Repeat([]byte{7}, 32)}, Power: 10},
		{Key: PublicKey{Secp256k1: bytes.Repeat([]byte{8}, 33)}}}
	testEvents = []Event{{Type: "app", Attributes: []Attribute{{"k", "v", true},
		{"other", "", false}}}, {Type: "none"}}
	testTransactions = [][]byte{[]byte("a=b"), nil, []byte("c=d")}
)

// vectors returns the frames that CometBFT made.
func vectors(t testing.TB) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var encoded map[string]string
	if err := json.Unmarshal(text, &encoded); err != nil {
		t.Fatal(err)
	}
	frames := make(map[string][]byte)
	for name, each := range encoded {
		if frames[name], err = hex.DecodeString(each); err != nil {
			t.Fatal(err)
		}
	}
	return frames
}

// Requests are, byte by byte, what CometBFT sends.
func TestRequestsAsCometBFT(t *testing.T) {
	t.Parallel()
	frames := vectors(t)
	final := &blockRequest{transactions: testTransactions, hash: testHash, height: 6,
		time: testTime}
	for name, each := range map[string]struct {
		call
		request message
	}{
		"flush": {callFlush, &empty{}},
		"info":  {callInfo, &asked},
		"init": {callInit, &initRequest{time: testTime, chain: "kv", params: testParams,
			validators: testValidators, state: []byte(`{"a":1}`), initialHeight: 5}},
		"query": {callQuery, &queryRequest{[]byte("k"), "/store", 7, true}},
		"check": {callCheck, &checkRequest{transaction: []byte("a=b")}},
		"prepare": {callPrepare, &prepareRequest{maxBytes: 1000, transactions: testTransactions,
			height: 6, time: testTime}},
		"process": {callProcess, final},
		"final":   {callFinal, final},
		"commit":  {callCommit, &empty{}},
	} {
		if got := appendFrame(nil, each.call.request, each.request); !bytes.Equal(got,
			frames[name]) {
			t.Errorf("%s:\n%x, CometBFT has\n%x", name, got, frames[name])
		}
	}
}

// Answers that CometBFT's code made are read as they were meant.
func TestAnswersOfCometBFT(t *testing.T) {
	t.Parallel()
	frames := vectors(t)
	result := TxResult{Code: 1, Data: []byte("d"), Log: "l", Info: "i", GasWanted: 5, GasUsed: 6,
		Events: testEvents, Codespace: "c"}
	checked := result
	checked.Code, checked.GasWanted, checked.GasUsed = 2, 1, -2
	for name, each := range map[string]struct {
		number protowire.Number
		want   message
	}{
		"exception":      {answerException, &exception{"it is broken"}},
		"info answer":    {callInfo.answer, &Info{"d", "v", 3, 8, testHash}},
		"init answer":    {callInit.answer, &initAnswer{testParams, testValidators, testHash}},
		"check answer":   {callCheck.answer, &checked},
		"commit answer":  {callCommit.answer, &commitAnswer{3}},
		"prepare answer": {callPrepare.answer, &prepareAnswer{testTransactions}},
		"process answer": {callProcess.answer, &processAnswer{proposalRejected}},
		"query answer": {callQuery.answer, &QueryAnswer{Code: 4, Log: "l", Info: "i", Index: -1,
			Key: []byte("k"), Value: []byte("v"), Height: 8, Codespace: "c",
			Proof: &ProofOps{[]ProofOp{{"t", []byte("k"), []byte("d")}}}}},
		"final answer": {callFinal.answer, &finalAnswer{testEvents, []TxResult{result, {}},
			testValidators, testParams, testHash}},
	} {
		frame, err := readFrame(bufio.NewReader(bytes.NewReader(frames[name])), 1<<20)
		if err != nil {
			t.Fatal(name, err)
		}
		number, content, err := openEnvelope(frame)
		if err != nil || number != each.number {
			t.Fatal(name, number, err)
		}
		got := reflect.New(reflect.TypeOf(each.want).Elem()).Interface().(message)
		if err := decode(content, got); err != nil {
			t.Fatal(name, err)
		}
		if !reflect.DeepEqual(got, each.want) {
			t.Errorf("%s:\n%+v, want\n%+v", name, got, each.want)
		}
	}
}

// What is encoded is decoded again.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 5, 20)
		answer := &finalAnswer{appHash: []byte(text.Draw(t, "hash"))}
		for range rapid.IntRange(0, 4).Draw(t, "results") {
			one := TxResult{Code: rapid.Uint32().Draw(t, "code"), Log: text.Draw(t, "log"),
				GasWanted: rapid.Int64().Draw(t, "gas")}
			for range rapid.IntRange(0, 3).Draw(t, "events") {
				one.Events = append(one.Events, Event{Type: text.Draw(t, "type")})
			}
			answer.results = append(answer.results, one)
		}
		if len(answer.appHash) == 0 {
			answer.appHash = nil
		}
		encoded := encode(nil, answer)
		var got finalAnswer
		if err := decode(encoded, &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(&got, answer) {
			t.Fatalf("%+v, want %+v", got, answer)
		}
	})
}

// Frames that are torn, too large, or no frames at all are refused, and take no memory before their
// bytes come.
func TestBadFrames(t *testing.T) {
	t.Parallel()
	whole := vectors(t)["final answer"]
	for cut := range whole {
		_, err := readFrame(bufio.NewReader(bytes.NewReader(whole[:cut])), 1<<20)
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
	for name, each := range map[string][]byte{
		"too large":   {0x80, 0x80, 0x80, 0x80, 0x10},
		"no varint":   bytes.Repeat([]byte{0xff}, 11),
		"not so long": append([]byte{0xff, 0x7f}, 1, 2, 3),
	} {
		if frame, err := readFrame(bufio.NewReader(bytes.NewReader(each)), 1<<20); err == nil {
			t.Errorf("%s: %d bytes", name, len(frame))
		}
	}
}

// A message of empty parts, which would take a hundred times its size, is refused.
func TestManyParts(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte{0x12, 0}, maxParts+1) // results
	if err := decode(data, &finalAnswer{}); !errors.Is(err, ErrMalformed) {
		t.Fatal(err)
	}
}

// FuzzDecode feeds bytes to the decoders of all answers. What they take is encoded and decoded to
// the same.
func FuzzDecode(f *testing.F) {
	for _, frame := range vectors(f) {
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		frame, err := readFrame(bufio.NewReader(bytes.NewReader(data)), 1<<16)
		if err != nil {
			return
		}
		_, content, err := openEnvelope(frame)
		if err != nil {
			return
		}
		for _, into := range []message{&exception{}, &Info{}, &initAnswer{}, &QueryAnswer{},
			&TxResult{}, &commitAnswer{}, &prepareAnswer{}, &processAnswer{}, &finalAnswer{}} {
			if err := decode(content, into); err != nil {
				if !errors.Is(err, ErrMalformed) {
					t.Fatal(err)
				}
				continue
			}
			again := reflect.New(reflect.TypeOf(into).Elem()).Interface().(message)
			once := encode(nil, into)
			if err := decode(once, again); err != nil {
				t.Fatal(err)
			}
			if twice := encode(nil, again); !bytes.Equal(once, twice) {
				t.Fatalf("%x and then %x", once, twice)
			}
		}
	})
}
