package signer

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

var (
	private = Private(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize)))
	other   = Private(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{8}, ed25519.SeedSize)))
)

// behaviourVariable has this test binary behave as an external signer.
const behaviourVariable = "LEDGERD_TEST_SIGNER"

func TestMain(m *testing.M) {
	if behaviour := os.Getenv(behaviourVariable); behaviour != "" {
		os.Exit(behave(behaviour))
	}
	os.Exit(m.Run())
}

// behave is the external signer of the tests: a good one, or one of many bad ones.
func behave(behaviour string) int {
	switch behaviour {
	case "good", "other key":
		key := map[string]Private{"good": private, "other key": other}[behaviour]
		err := Serve(context.Background(), os.Stdin, os.Stdout,
			func(name ledger.OrganisationName) (Signer, error) {
				if name == "nobody" {
					return nil, errors.New("no key of nobody")
				}
				return key, nil
			}, nil)
		if err != nil {
			return 1
		}
	case "wrong signature":
		fmt.Printf("{\"signature\":\"%0128x\"}\n", 5)
	case "short signature":
		fmt.Println(`{"signature":"abcd"}`)
	case "refuses":
		fmt.Println(`{"error":"the token is locked"}`)
		return 3
	case "refuses at length":
		fmt.Printf("{\"error\":%q}\n", strings.Repeat("no\n", 3000))
	case "nonsense":
		fmt.Println("hello")
	case "two answers":
		fmt.Println("{\"signature\":\"\"}\n{}")
	case "nothing":
	case "fails":
		return 1
	case "floods":
		for i := 0; ; i++ {
			if _, err := os.Stdout.Write(bytes.Repeat([]byte("a"), 4096)); err != nil {
				return 1
			}
		}
	case "hangs":
		time.Sleep(time.Minute)
	case "hangs after closing":
		os.Stdout.Close()
		os.Stdin.Close()
		time.Sleep(time.Minute)
	}
	return 0
}

// command returns the remote that runs this binary with a behaviour.
func command(t *testing.T, behaviour string) Remote {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Remote{Command: []string{"/usr/bin/env", behaviourVariable + "=" + behaviour, self}}
}

func external(t *testing.T, remote Remote) *External {
	t.Helper()
	e, err := NewExternal(remote, private.Public())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func newBundle(t testing.TB) *ledger.Bundle {
	t.Helper()
	bundle, err := ledger.NewBundle(ledger.Transaction{Ledger: ledger.Hash{1}, Signer: "acme",
		Nonce: ledger.Nonce{Stream: 1, Sequence: 1},
		Postings: []ledger.Posting{
			{Account: "acme:a", Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(-5)},
			{Account: "acme:b", Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(5)},
		}})
	if err != nil {
		t.Fatal(err)
	}
	return bundle
}

// All signers of a key make the same signature, and it is good.
func TestSignersAgree(t *testing.T) {
	t.Parallel()
	var signatures []ledger.Signature
	for _, by := range []Signer{private, external(t, command(t, "good")),
		external(t, listen(t, serveWell))} {
		bundle := newBundle(t)
		if err := SignBundle(t.Context(), bundle, "acme", by); err != nil {
			t.Fatal(err)
		}
		signatures = append(signatures, bundle.Signatures()...)
	}
	message := newBundle(t).SigningMessage()
	for _, signature := range signatures {
		if signature != signatures[0] || signature.Organisation != "acme" ||
			!ed25519.Verify(signature.Key[:], message, signature.Bytes[:]) {
			t.Errorf("%v", signature)
		}
	}
	if key, err := command(t, "good").PublicKey(t.Context(), "acme"); err != nil ||
		key != private.Public() {
		t.Errorf("%v, %v", key, err)
	}
	if _, err := command(t, "good").PublicKey(t.Context(), "nobody"); !errors.Is(err,
		ErrExternal) || !strings.Contains(err.Error(), "no key of nobody") {
		t.Error(err)
	}
	if err := external(t, command(t, "good")).Test(t.Context(), ledger.Operator); err != nil {
		t.Error(err)
	}
}

// A command that misbehaves gives no signature, says why, and does so in time.
func TestCommandsThatMisbehave(t *testing.T) {
	t.Parallel()
	for behaviour, says := range map[string]string{
		"other key":           "not the signer of the key",
		"wrong signature":     "does it have another key",
		"short signature":     "no signature",
		"refuses":             `"the token is locked"`,
		"refuses at length":   `no\nno\n`,
		"nonsense":            "no JSON object",
		"two answers":         "no JSON object",
		"nothing":             "no JSON object",
		"fails":               "exit status 1",
		"floods":              "more than 16384 bytes",
		"hangs":               "no answer in time",
		"hangs after closing": "no answer in time",
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			if strings.HasPrefix(behaviour, "hangs") {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
			}
			bundle, began := newBundle(t), time.Now()
			err := SignBundle(ctx, bundle, "acme", external(t, command(t, behaviour)))
			if !errors.Is(err, ErrExternal) || !strings.Contains(err.Error(), says) ||
				len(err.Error()) > 2000 || len(bundle.Signatures()) > 0 {
				t.Errorf("%v", err)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
	missing := external(t, Remote{Command: []string{"/no/such/program"}})
	if err := missing.Test(t.Context(), "acme"); !errors.Is(err, ErrExternal) {
		t.Error(err)
	}
}

// listen serves a socket, each connection by serve.
func listen(t *testing.T, serve func(net.Conn)) Remote {
	t.Helper()
	folder, err := os.MkdirTemp("", "signer-") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
		_ = os.RemoveAll(folder)
	})
	return Remote{Socket: path}
}

func serveWell(conn net.Conn) {
	_ = Serve(context.Background(), conn, conn,
		func(ledger.OrganisationName) (Signer, error) { return private, nil }, nil)
}

// A server that misbehaves gives no signature, says why, and is asked again on a new connection.
func TestSocketsThatMisbehave(t *testing.T) {
	t.Parallel()
	answer := func(text string) func(net.Conn) {
		return func(conn net.Conn) {
			_, _ = bufio.NewReader(conn).ReadString('\n')
			_, _ = io.WriteString(conn, text)
		}
	}
	for name, test := range map[string]struct {
		serve func(net.Conn)
		says  string
	}{
		"closes at once":        {func(net.Conn) {}, "gave no signature"},
		"closes early":          {answer(""), "without an answer"},
		"closes within":         {answer(`{"signature":`), "within its answer"},
		"floods":                {answer(strings.Repeat("a", 1<<20)), "more than 16384 bytes"},
		"answers twice":         {answer("{\"signature\":\"\"}\n{}\n"), "more than one answer"},
		"answers something":     {answer("[]\n"), "no JSON object"},
		"answers another thing": {answer("{\"public_key\":\"00\"}\n"), "no signature"},
		"refuses":               {answer("{\"error\":\"locked\"}\n"), `"locked"`},
		"hangs": {func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) },
			"no answer in time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := external(t, listen(t, test.serve))
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				if name == "hangs" {
					cancel()
					ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
				}
				err := e.Test(ctx, "acme")
				cancel()
				if !errors.Is(err, ErrExternal) || !strings.Contains(err.Error(), test.says) {
					t.Errorf("%v", err)
				}
			}
		})
	}
	if err := external(t, Remote{Socket: "/no/such/socket"}).Test(t.Context(),
		"acme"); !errors.Is(err, ErrExternal) {
		t.Error(err)
	}
}

// One connection serves all requests. If it breaks between two, another one takes its place.
func TestConnectionIsKept(t *testing.T) {
	t.Parallel()
	var connections atomic.Int32
	e := external(t, listen(t, func(conn net.Conn) {
		if connections.Add(1) > 1 {
			serveWell(conn)
			return
		}
		reader := bufio.NewReader(conn)
		for range 3 {
			line, err := reader.ReadBytes('\n')
			if err != nil {
				return
			}
			_ = Serve(context.Background(), bytes.NewReader(line), conn,
				func(ledger.OrganisationName) (Signer, error) { return private, nil }, nil)
		}
	}))
	for i := range 6 {
		if err := e.Test(t.Context(), "acme"); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		if want := int32(1 + i/3); connections.Load() != want {
			t.Fatalf("request %d: %d connections, want %d", i, connections.Load(), want)
		}
	}
}

// Requests of many goroutines do not mix, and one that waits for its turn ends with its context.
func TestConcurrentRequests(t *testing.T) {
	t.Parallel()
	e := external(t, listen(t, serveWell))
	var working sync.WaitGroup
	for range 8 {
		working.Go(func() {
			for range 20 {
				if err := e.Test(t.Context(), "acme"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	working.Wait()
	slow := external(t, listen(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }))
	busy, release := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = slow.Test(busy, "acme")
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := slow.Test(ctx, "acme"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	release()
	<-ended
}

// What a signer must not sign.
func TestRequestsThatFailTheCheck(t *testing.T) {
	t.Parallel()
	bundle := newBundle(t)
	root := bundle.SigningMessage()
	good := Message{Kind: KindBundle, Organisation: "acme", Bytes: root, Bundle: bundle.Encode()}
	for name, change := range map[string]func(*Message){
		"another root": func(m *Message) {
			m.Bytes = bytes.Clone(root)
			m.Bytes[len(m.Bytes)-1]++
		},
		"no bundle":         func(m *Message) { m.Bundle = nil },
		"no message":        func(m *Message) { m.Bytes = nil },
		"a bundle as test":  func(m *Message) { m.Kind = KindTest },
		"a message as test": func(m *Message) { m.Kind, m.Bundle = KindTest, nil },
		"an unknown kind":   func(m *Message) { m.Kind = "certificate" },
		"a test with bundle": func(m *Message) {
			*m = testMessage("acme")
			m.Bundle = bundle.Encode()
		},
		"a test that is long": func(m *Message) {
			*m = testMessage("acme")
			m.Bytes = append(m.Bytes, 0)
		},
	} {
		message := good
		change(&message)
		request := &Request{Sign: true, Key: private.Public(), Message: message}
		if _, err := request.Check(); !errors.Is(err, ErrRequest) {
			t.Errorf("%s: %v", name, err)
		}
		if answer := serveOne(t, request); answer.Error == "" || answer.Signature != "" {
			t.Errorf("%s: %+v", name, answer)
		}
	}
	request := &Request{Sign: true, Key: private.Public(), Message: good}
	if shown, err := request.Check(); err != nil || shown.Root() != bundle.Root() {
		t.Error(err)
	}
	if answer := serveOne(t, request); answer.Error != "" {
		t.Error(answer.Error)
	}
}

func serveOne(t *testing.T, request *Request) (answer answerLine) {
	t.Helper()
	line, err := request.encode()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Serve(t.Context(), bytes.NewReader(line), &out,
		func(ledger.OrganisationName) (Signer, error) { return private, nil }, nil); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

// A signer that shows what it signs can refuse it.
func TestShow(t *testing.T) {
	t.Parallel()
	var shown ledger.Hash
	e := external(t, listen(t, func(conn net.Conn) {
		_ = Serve(context.Background(), conn, conn,
			func(ledger.OrganisationName) (Signer, error) { return private, nil },
			func(request *Request, bundle *ledger.Bundle) error {
				shown = bundle.ID(0)
				if request.Message.Organisation == ledger.Operator {
					return errors.New("not as an operator")
				}
				return nil
			})
	}))
	bundle := newBundle(t)
	if err := SignBundle(t.Context(), bundle, ledger.Operator, e); !errors.Is(err, ErrExternal) ||
		!strings.Contains(err.Error(), "not as an operator") {
		t.Error(err)
	}
	if err := SignBundle(t.Context(), bundle, "acme", e); err != nil || shown != bundle.ID(0) {
		t.Errorf("%v, %v", err, shown)
	}
}

func TestRemotes(t *testing.T) {
	t.Parallel()
	for name, remote := range map[string]Remote{
		"none":          {},
		"both":          {Command: []string{"/a"}, Socket: "/b"},
		"relative":      {Command: []string{"a"}},
		"relative path": {Socket: "b"},
		"many words":    {Command: append([]string{"/a"}, make([]string, argumentsMax)...)},
		"a long word":   {Command: []string{"/a", strings.Repeat("b", argumentBytesMax+1)}},
		"a line break":  {Socket: "/a\nb"},
	} {
		if _, err := NewExternal(remote, private.Public()); !errors.Is(err, ErrRemote) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzAnswer decodes anything that an external signer may answer.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"public_key":"` + private.Public().String() + `"}`))
	f.Add([]byte(`{"signature":"` + strings.Repeat("0a", 64) + `"}`))
	f.Add([]byte(`{"error":"no"}`))
	f.Add([]byte(`{"error":"` + strings.Repeat("ü", 200) + `"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		for _, sign := range []bool{false, true} {
			key, signature, err := decodeAnswer(line, sign)
			if err != nil && !errors.Is(err, ErrExternal) {
				t.Fatal(err)
			}
			if err == nil && (sign && key != ledger.PublicKey{} ||
				!sign && signature != ledger.SignatureBytes{}) {
				t.Fatal("an answer to another request")
			}
		}
	})
}

// FuzzRequest decodes anything that a signer may be asked, and encodes it again.
func FuzzRequest(f *testing.F) {
	bundle := newBundle(f)
	for _, request := range []Request{
		{Message: Message{Organisation: "acme"}},
		{Sign: true, Key: private.Public(), Message: testMessage(ledger.Operator)},
		{Sign: true, Key: private.Public(), Message: Message{Kind: KindBundle,
			Organisation: "acme", Bytes: bundle.SigningMessage(),
			Bundle: bundle.Encode()}},
	} {
		line, err := request.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		request, err := DecodeRequest(line)
		if err != nil {
			if !errors.Is(err, ErrRequest) {
				t.Fatal(err)
			}
			return
		}
		again, err := request.encode()
		if err != nil {
			t.Fatal(err)
		}
		second, err := DecodeRequest(again)
		if err != nil || second.Key != request.Key || second.Sign != request.Sign ||
			!bytes.Equal(second.Message.Bytes, request.Message.Bytes) {
			t.Fatalf("%+v, %+v, %v", request, second, err)
		}
		if shown, err := request.Check(); request.Sign && err == nil && shown != nil &&
			!bytes.Equal(request.Message.Bytes, shown.SigningMessage()) {
			t.Fatal("a bundle that is not the message")
		}
	})
}
