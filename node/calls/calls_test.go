package calls

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	ledgerdv1 "github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// pair makes an asker and a member over memory.
func pair(t testing.TB, serve http.Handler, change func(*Config)) (network *memory.Network,
	asking, member *Calls) {
	t.Helper()
	network = memory.NewNetwork()
	asking = start(t, memoryHost(t, network, asker), named("asker"), change)
	member = start(t, memoryHost(t, network, "member-1"), serve, change)
	return network, asking, member
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, length := range []int{0, 1, 15, 16, 17, 1000, 40 << 10} {
		_, asking, member := pair(t, named("one"), func(c *Config) { c.PieceBytes = 16 })
		body := strings.Repeat("x", length)
		status, got, err := post(within(t, patience), asking, body)
		if err != nil || status != http.StatusOK || got != "one POST /path?q=1 "+body {
			t.Fatalf("%d bytes: status %d, %d bytes, %v", length, status, len(got), err)
		}
		await(t, "the end of serving", func() bool { return member.Status().Serving == 0 })
		if used := member.inService.Used() + asking.gathered.Used(); used != 0 {
			t.Fatalf("%d bytes are still reserved", used)
		}
		if state := asking.Status(); state.Asked != 1 || state.Repeated != 0 || state.Asking != 0 ||
			asking.requests.Status().Asking != 0 {
			t.Fatalf("%+v", state)
		}
	}
}

func TestHeadersThatGoAlong(t *testing.T) {
	t.Parallel()
	_, asking, _ := pair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.RemoteAddr != string(asker) || r.Header.Get("Authorization") != "" ||
			r.Header.Get("Connect-Protocol-Version") != "1" ||
			r.Header.Get("Content-Type") != "application/proto" {
			t.Errorf("from %s with %v", r.RemoteAddr, r.Header)
		}
		w.Header().Set("Ledgerd-Writers", "a,b")
		w.WriteHeader(http.StatusTeapot)
		w.Header().Set("Too-Late", "1")
	}), nil)
	r, _ := http.NewRequestWithContext(within(t, patience), http.MethodPost, URL(1)+"/",
		http.NoBody)
	r.Header = http.Header{"Authorization": {"secret"}, "Connect-Protocol-Version": {"1"},
		"Content-Type": {"application/proto"}}
	response, err := asking.Transport(1).RoundTrip(r)
	if err != nil || response.StatusCode != http.StatusTeapot ||
		response.Header.Get("Ledgerd-Writers") != "a,b" || response.Header.Get("Too-Late") != "" {
		t.Fatalf("%+v, %v", response, err)
	}
}

func TestLargeBodiesBothWays(t *testing.T) {
	t.Parallel()
	_, asking, _ := pair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}), nil)
	body := bytes.Repeat([]byte("0123456789abcdef"), BodyMax/16)
	status, got, err := post(within(t, patience), asking, string(body))
	if err != nil || status != http.StatusOK || got != string(body) {
		t.Fatalf("status %d, %d bytes, %v", status, len(got), err)
	}
	if _, _, err := post(within(t, patience), asking, string(body)+"x"); !errors.Is(err,
		ErrNotCarried) {
		t.Fatal(err)
	}
}

func TestAnswerThatIsTooLarge(t *testing.T) {
	t.Parallel()
	_, asking, _ := pair(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, BodyMax))
		if _, err := w.Write([]byte{1}); err == nil {
			t.Error("it was taken")
		}
	}), nil)
	if status, answer, err := post(within(t, patience), asking, ""); err != nil ||
		status != http.StatusTooManyRequests || !strings.Contains(answer, "ask for less") {
		t.Fatalf("%d %s %v", status, answer, err)
	}
}

func TestStrangersAreNotServed(t *testing.T) {
	t.Parallel()
	network := memory.NewNetwork()
	start(t, memoryHost(t, network, "member-1"),
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			t.Error("served")
		}), nil)
	stranger := start(t, memoryHost(t, network, "stranger"), named("stranger"), func(c *Config) {
		c.Candidates = candidates("member-1")
	})
	if _, _, err := post(within(t, 300*time.Millisecond), stranger, ""); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestRetryAnswersGoToTheNextMember(t *testing.T) {
	t.Parallel()
	busy := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(api.HeaderRetry, "true")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "first")
	})
	network := memory.NewNetwork()
	asking := start(t, memoryHost(t, network, asker), named("asker"), nil)
	start(t, memoryHost(t, network, "member-1"), busy, nil)
	second := start(t, memoryHost(t, network, "member-2"), named("two"), nil)
	if status, answer, err := post(within(t, patience), asking, ""); err != nil ||
		status != http.StatusOK || !strings.HasPrefix(answer, "two") {
		t.Fatalf("%d %s %v", status, answer, err)
	}
	// No member has a better answer.
	second.Close()
	network.Kill("member-2")
	start(t, memoryHost(t, network, "member-2"), busy, nil)
	if status, answer, err := post(within(t, patience), asking, ""); err != nil ||
		status != http.StatusServiceUnavailable || answer != "first" {
		t.Fatalf("%d %s %v", status, answer, err)
	}
}

// A member that hangs costs the allowed silence once: another member answers the call, and the next
// call goes to that other member first. The time is virtual.
func TestHangingMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := memory.NewNetwork()
		asking := start(t, memoryHost(t, network, asker), named("asker"), nil)
		mute(t, memoryHost(t, network, "member-1"))
		start(t, memoryHost(t, network, "member-2"), named("two"), nil)
		begin := time.Now()
		status, answer, err := post(within(t, 3*time.Second), asking, "")
		if took := time.Since(begin); err != nil || status != http.StatusOK ||
			!strings.HasPrefix(answer, "two") || took < patienceMin || took > 2*time.Second {
			t.Fatalf("%d %s %v after %v", status, answer, err, took)
		}
		begin = time.Now()
		if _, answer, err = post(within(t, 3*time.Second), asking, ""); err != nil ||
			!strings.HasPrefix(answer, "two") || time.Since(begin) > 500*time.Millisecond {
			t.Fatalf("%s %v after %v", answer, err, time.Since(begin))
		}
		if state := asking.Status(); state.Repeated != 1 {
			t.Fatalf("%+v", state)
		}
	})
}

// A slow call is not repeated at another member while its own member shows that it works on it. The
// time is virtual: on a real clock a pause of the machine looks like a silent member.
func TestSlowCallIsNotRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := memory.NewNetwork()
		slow := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(10 * SilenceDefault)
			_, _ = io.WriteString(w, "slow")
		})
		other := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			t.Error("the call was repeated")
		})
		asking := start(t, memoryHost(t, network, asker), named("asker"), nil)
		start(t, memoryHost(t, network, "member-1"), slow, nil)
		start(t, memoryHost(t, network, "member-2"), other, nil)
		_, answer, err := post(within(t, time.Hour), asking, "")
		if err != nil || answer != "slow" {
			t.Fatalf("%s %v", answer, err)
		}
	})
}

func TestKilledMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := memory.NewNetwork()
		began, ended := make(chan struct{}, 1), make(chan struct{}, 1)
		asking := start(t, memoryHost(t, network, asker), named("asker"), nil)
		first := start(t, memoryHost(t, network, "member-1"), waiting(began, ended), nil)
		start(t, memoryHost(t, network, "member-2"), named("two"), nil)
		killed := make(chan time.Time, 1)
		go func() {
			<-began
			network.Kill("member-1")
			first.Close()
			killed <- time.Now()
		}()
		_, answer, err := post(within(t, patience), asking, "")
		if err != nil || !strings.HasPrefix(answer, "two") || time.Since(<-killed) > time.Second {
			t.Fatalf("%s %v", answer, err)
		}
		receive(t, "the end of the killed member's handler", ended)
	})
}

// The only member restarts while it works on a call. The call ends with an error that says so, and
// the member answers the next call after its restart.
func TestRestartedMember(t *testing.T) {
	t.Parallel()
	network := memory.NewNetwork()
	began, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	asking := start(t, memoryHost(t, network, asker), named("asker"), func(c *Config) {
		c.Candidates = candidates("member-1")
	})
	first := start(t, memoryHost(t, network, "member-1"), waiting(began, ended), nil)
	go func() {
		<-began
		network.Kill("member-1")
		first.Close()
		start(t, memoryHost(t, network, "member-1"), named("again"), nil)
	}()
	_, _, err := post(within(t, patience), asking, "")
	if !errors.Is(err, ErrUnanswered) || !strings.Contains(err.Error(), "shard 1") ||
		len(err.Error()) > 200 {
		t.Fatal(err)
	}
	if _, answer, err := post(within(t, patience), asking, ""); err != nil ||
		!strings.HasPrefix(answer, "again") {
		t.Fatalf("%s %v", answer, err)
	}
}

// If a caller cancels a call, the member's handler ends too.
func TestCancelledCall(t *testing.T) {
	t.Parallel()
	for _, length := range []int{0, 100} { // in one frame, in several
		began, ended := make(chan struct{}, 1), make(chan struct{}, 1)
		_, asking, _ := pair(t, waiting(began, ended), func(c *Config) { c.PieceBytes = 16 })
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-began
			cancel()
		}()
		if _, _, err := post(ctx, asking, strings.Repeat("x", length)); !errors.Is(err,
			context.Canceled) {
			t.Fatal(err)
		}
		receive(t, "the end of the handler", ended)
	}
}

func TestDeadlineHoldsAtTheMember(t *testing.T) {
	t.Parallel()
	began, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	_, asking, _ := pair(t, waiting(began, ended), func(c *Config) {
		c.TimeoutMax = 300 * time.Millisecond
	})
	if _, _, err := post(t.Context(), asking, ""); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "shard 1") {
		t.Fatal(err)
	}
	receive(t, "the end of the handler", ended)
}

// When the asker's process ends, its calls at the member end too.
func TestCallsOfARestartedAskerEnd(t *testing.T) {
	t.Parallel()
	began, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	network, asking, _ := pair(t, waiting(began, ended), nil)
	result := make(chan error, 1)
	go func() {
		_, _, err := post(t.Context(), asking, "")
		result <- err
	}()
	receive(t, "the call", began)
	network.Kill(asker)
	asking.Close()
	if err := <-result; !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	again := start(t, memoryHost(t, network, asker), named("asker"), nil)
	go func() { _, _, _ = post(t.Context(), again, "") }()
	receive(t, "the end of the earlier life's call", ended)
	again.Close()
}

func TestBounds(t *testing.T) {
	t.Parallel()
	began, ended := make(chan struct{}, 4), make(chan struct{}, 4)
	_, asking, member := pair(t, waiting(began, ended), func(c *Config) {
		c.ServingPerPeer, c.AskingMax, c.Candidates = 2, 3, candidates("member-1")
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience/3)
	results := make(chan error, 2)
	for range 2 {
		go func() {
			_, _, err := post(ctx, asking, "")
			results <- err
		}()
	}
	receive(t, "the first call", began)
	receive(t, "the second call", began)
	status, answer, err := post(ctx, asking, "")
	if err != nil || status != http.StatusServiceUnavailable ||
		!strings.Contains(answer, "as many calls") || member.Status().Refused != 1 {
		t.Fatalf("%d %s %v", status, answer, err)
	}
	asking.config.AskingMax = 2
	if _, _, err := post(ctx, asking, ""); !errors.Is(err, ErrBusy) {
		t.Fatal(err)
	}
	cancel()
	for range 2 {
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		receive(t, "the end of a handler", ended)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	_, asking, member := pair(t, named("one"), func(c *Config) {
		c.Candidates = candidates("member-1")
	})
	if !member.inService.Take(MemoryMaxDefault - 10) {
		t.Fatal("nothing is free")
	}
	if status, _, err := post(within(t, patience), asking, "a body of 20 bytes.."); err != nil ||
		status != http.StatusServiceUnavailable {
		t.Fatalf("%d %v", status, err)
	}
	// The answer is longer.
	if status, _, err := post(within(t, patience), asking, "1"); err != nil ||
		status != http.StatusServiceUnavailable {
		t.Fatalf("%d %v", status, err)
	}
	await(t, "the end of serving", func() bool { return member.Status().Serving == 0 })
	if used := member.inService.Used(); used != MemoryMaxDefault-10 {
		t.Fatalf("%d bytes are reserved", used)
	}
}

func TestWhatIsNotCarried(t *testing.T) {
	t.Parallel()
	_, asking, _ := pair(t, named("one"), nil)
	for name, change := range map[string]func(*http.Request){
		"a method": func(r *http.Request) { r.Method = http.MethodPut },
		"a stream": func(r *http.Request) {
			r.Header.Set("Content-Type", "application/connect+proto")
		},
		"gRPC": func(r *http.Request) {
			r.Header.Set("Content-Type", "application/grpc-web+proto")
		},
		"a header": func(r *http.Request) { r.Header["Connect-Bad"] = []string{"a\nb"} },
		"a long head": func(r *http.Request) {
			r.Header.Set("Accept", strings.Repeat("x", headMax))
		},
		"a long path": func(r *http.Request) { r.URL.Path = "/" + strings.Repeat("x", textMax) },
	} {
		r, _ := http.NewRequestWithContext(within(t, patience), http.MethodPost, URL(1)+"/",
			strings.NewReader("x"))
		change(r)
		if _, err := asking.Transport(1).RoundTrip(r); !errors.Is(err, ErrNotCarried) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r, _ := http.NewRequestWithContext(within(t, patience), http.MethodGet, URL(7)+"/", nil)
	if _, err := asking.Transport(7).RoundTrip(r); !errors.Is(err, ErrUnanswered) ||
		!strings.Contains(err.Error(), "shard 7") {
		t.Error(err)
	}
	asking.Close()
	if _, err := asking.Transport(1).RoundTrip(r); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestPanicOfAHandler(t *testing.T) {
	t.Parallel()
	_, asking, _ := pair(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		panic("planted")
	}), nil)
	if status, answer, err := post(within(t, patience), asking, ""); err != nil ||
		status != http.StatusInternalServerError || strings.Contains(answer, "half") {
		t.Fatalf("%d %s %v", status, answer, err)
	}
}

// service is a real Connect service.
type service struct {
	ledgerdv1connect.UnimplementedLedgerServiceHandler
}

func (service) GetAccount(ctx context.Context, r *connect.Request[ledgerdv1.GetAccountRequest]) (
	*connect.Response[ledgerdv1.GetAccountResponse], error) {
	if _, timed := ctx.Deadline(); !timed {
		return nil, errors.New("no deadline")
	}
	switch r.Msg.GetAccount() {
	case "none":
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such account"))
	case "long":
		return connect.NewResponse(&ledgerdv1.GetAccountResponse{
			Account: &ledgerdv1.Account{Account: strings.Repeat("long", 4<<10)}}), nil
	case "large":
		return connect.NewResponse(&ledgerdv1.GetAccountResponse{
			Account: &ledgerdv1.Account{Account: strings.Repeat("large", 1<<19)}}), nil
	}
	return connect.NewResponse(&ledgerdv1.GetAccountResponse{
		Account: &ledgerdv1.Account{Account: r.Msg.GetAccount()}}), nil
}

func checkConnect(t *testing.T, asking *Calls) {
	t.Helper()
	for _, options := range [][]connect.ClientOption{nil, {connect.WithHTTPGet()},
		{connect.WithProtoJSON()}, {connect.WithSendGzip()}} {
		client := ledgerdv1connect.NewLedgerServiceClient(
			&http.Client{Transport: asking.Transport(1)}, URL(1), options...)
		ctx := within(t, patience)
		answer, err := client.GetAccount(ctx,
			connect.NewRequest(&ledgerdv1.GetAccountRequest{Account: "bank:cash"}))
		if err != nil || answer.Msg.GetAccount().GetAccount() != "bank:cash" {
			t.Fatalf("%v, %v", answer, err)
		}
		if answer, err = client.GetAccount(ctx,
			connect.NewRequest(&ledgerdv1.GetAccountRequest{Account: "long"})); err != nil ||
			len(answer.Msg.GetAccount().GetAccount()) != 16<<10 {
			t.Fatal(err) // compressed
		}
		if _, err = client.GetAccount(ctx,
			connect.NewRequest(&ledgerdv1.GetAccountRequest{Account: "none"})); connect.CodeOf(
			err) != connect.CodeNotFound || !strings.Contains(err.Error(), "no such account") {
			t.Fatal(err)
		}
		if _, err = client.GetBlock(ctx, connect.NewRequest(
			&ledgerdv1.GetBlockRequest{})); connect.CodeOf(err) != connect.CodeUnimplemented {
			t.Fatal(err)
		}
	}
	plain := ledgerdv1connect.NewLedgerServiceClient(&http.Client{Transport: asking.Transport(1)},
		URL(1), connect.WithAcceptCompression("gzip", nil, nil))
	answer, err := plain.GetAccount(within(t, patience),
		connect.NewRequest(&ledgerdv1.GetAccountRequest{Account: "large"}))
	if err != nil || len(answer.Msg.GetAccount().GetAccount()) != 5<<19 {
		t.Fatal(err) // in parts
	}
}

func TestConnectOverMemory(t *testing.T) {
	t.Parallel()
	path, handler := ledgerdv1connect.NewLedgerServiceHandler(service{},
		connect.WithCompressMinBytes(4<<10))
	mux := http.NewServeMux()
	mux.Handle(path, handler)
	_, asking, _ := pair(t, mux, nil)
	checkConnect(t, asking)
	asking.Close()
	client := ledgerdv1connect.NewLedgerServiceClient(&http.Client{Transport: asking.Transport(1)},
		URL(1))
	if _, err := client.GetAccount(within(t, patience),
		connect.NewRequest(&ledgerdv1.GetAccountRequest{})); connect.CodeOf(err) !=
		connect.CodeUnavailable {
		t.Fatal(err)
	}
}

// Over p2p: Connect's calls, then a member that closes while it works, and a member that was never
// started.
func TestConnectOverP2P(t *testing.T) {
	t.Parallel()
	hosts := overP2P(t, 3)
	find := func(peer rdmanet.PeerID) (ledger.ShardID, bool) { return 1, true }
	known := func(c *Config) {
		c.Find, c.Candidates = find, candidates(hosts[1].ID(), hosts[2].ID())
	}
	_, handler := ledgerdv1connect.NewLedgerServiceHandler(service{},
		connect.WithCompressMinBytes(4<<10))
	asking := start(t, hosts[0], named("asker"), known)
	began, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	first := start(t, hosts[1], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/path" {
			waiting(began, ended).ServeHTTP(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	}), known)
	start(t, hosts[2], named("two"), known)
	checkConnect(t, asking)
	go func() {
		<-began
		first.Close()
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = hosts[1].Close(over)
	}()
	if _, answer, err := post(within(t, patience), asking, ""); err != nil ||
		!strings.HasPrefix(answer, "two") {
		t.Fatalf("%s %v", answer, err)
	}
	begin := time.Now()
	if _, answer, err := post(within(t, patience), asking, ""); err != nil ||
		!strings.HasPrefix(answer, "two") || time.Since(begin) >= SilenceDefault {
		t.Fatalf("%s %v after %v", answer, err, time.Since(begin))
	}
}

func TestHeaderRetryIsTheAPIs(t *testing.T) {
	if HeaderRetry != api.HeaderRetry {
		t.Fatalf("%q, the API's is %q", HeaderRetry, api.HeaderRetry)
	}
}

func TestConfigIsChecked(t *testing.T) {
	host := memoryHost(t, memory.NewNetwork(), asker)
	for name, change := range map[string]func(*Config){
		"no host":     func(c *Config) { c.Host = nil },
		"no handler":  func(c *Config) { c.Serve = nil },
		"bound":       func(c *Config) { c.ServingMax = -1 },
		"time":        func(c *Config) { c.Silence = -1 },
		"memory":      func(c *Config) { c.MemoryMax = 1 },
		"pieces":      func(c *Config) { c.PieceBytes = 1 },
		"long calls":  func(c *Config) { c.TimeoutMax = time.Hour },
		"no members":  func(c *Config) { c.Find = nil },
		"no contacts": func(c *Config) { c.Candidates = nil },
	} {
		config := Config{Host: host, Find: find, Candidates: candidates(), Serve: named("")}
		change(&config)
		if c, err := New(config); err == nil {
			c.Close()
			t.Errorf("%s: taken", name)
		}
	}
}
