package calls

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// headerOf makes headers that are carried.
func headerOf(t *rapid.T) http.Header {
	header := make(http.Header)
	for _, name := range rapid.SliceOfN(rapid.SampledFrom([]string{"Accept", "Content-Type",
		"Connect-Timeout-Ms", "Ledgerd-Retry"}), 0, 5).Draw(t, "names") {
		header.Add(name, rapid.StringMatching(`[ -~]{0,20}`).Draw(t, "value"))
	}
	return header
}

// encodeAnswer returns the chunk of an answer.
func encodeAnswer(t interface{ Fatal(...any) }, status int, header http.Header, body []byte,
) []byte {
	head, err := appendHeaders(nil, header, all)
	if err != nil {
		t.Fatal(err)
	}
	w := &answerWriter{status: status, head: head}
	return slices.Concat(w.begin(), head, body)
}

// Decoding the encoded messages gives the original.
func TestMessagesRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		header, body := headerOf(t), rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "body")
		head, err := encodeHead(http.MethodPost, "/a?b", header)
		if err != nil {
			t.Fatal(err)
		}
		r, err := decodeRequest(head)
		if err != nil || r.method != http.MethodPost || r.target != "/a?b" ||
			!reflect.DeepEqual(r.header, header) {
			t.Fatalf("%+v, %v", r, err)
		}
		a, err := decodeAnswer(encodeAnswer(t, 503, header, body))
		if err != nil || a.status != 503 || !reflect.DeepEqual(a.header, header) ||
			!bytes.Equal(a.body, body) {
			t.Fatalf("%+v, %v", a, err)
		}
	})
}

// Every message is refused, or what it means is within the bounds and can be encoded.
func FuzzMessages(f *testing.F) {
	head, _ := encodeHead(http.MethodPost, "/a", http.Header{"Accept": {"x"}})
	f.Add(head)
	f.Add(encodeAnswer(f, 200, http.Header{"Ledgerd-Retry": {"true"}}, []byte("an answer")))
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 64))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeRequest(data)
		if err == nil && !strings.HasPrefix(r.target, "/") {
			t.Fatalf("%+v", r)
		}
		if err == nil {
			if _, err := appendHeaders(nil, r.header, all); err != nil {
				t.Fatal(err)
			}
		} else if !errors.Is(err, errMessage) {
			t.Fatal(err)
		}
		a, err := decodeAnswer(data)
		if err == nil && (a.status < statusMin || a.status > statusMax) {
			t.Fatalf("%+v", a)
		}
		if err != nil && !errors.Is(err, errMessage) {
			t.Fatal(err)
		}
	})
}

// raw is a member without a Calls: its handler gets what others are sent.
func raw(t testing.TB, host rdmanet.Host, serve func(context.Context, *wire.Served) error,
) *wire.Requests {
	t.Helper()
	requests, err := wire.New(wire.Config{Host: host, Lane: LaneName, Serve: serve,
		Admit:  func(rdmanet.PeerID) bool { return true },
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(requests.Close)
	return requests
}

// A member whose answer is wrong in form, too large, or without an end is lost, and the next one
// answers. Nothing stays reserved.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	right := encodeAnswer(t, http.StatusOK, nil, []byte("forged"))
	forged := func(at int, bytes ...byte) []byte {
		frame := slices.Clone(right)
		copy(frame[at:], bytes)
		return frame
	}
	end := func(chunk []byte) func(context.Context, *wire.Served) error {
		return func(_ context.Context, asked *wire.Served) error { return asked.End(chunk) }
	}
	for name, serve := range map[string]func(context.Context, *wire.Served) error{
		"nothing":               end(nil),
		"cut short":             end(right[:answerHeaderSize-1]),
		"a status too low":      end(forged(0, 100, 0)),
		"a status too high":     end(forged(0, 0xff, 0xff)),
		"a head beyond it":      end(forged(2, 0xff)),
		"a head beyond all":     end(forged(2, 0xff, 0xff, 0xff, 0xff)),
		"headers without a sum": end(forged(answerHeaderSize, 9)),
		"a body beyond all bounds": func(_ context.Context, asked *wire.Served) error {
			if err := asked.Send(right); err != nil {
				return err
			}
			for range BodyMax >> 20 {
				if err := asked.Send(make([]byte, 1<<20)); err != nil {
					return err
				}
			}
			return asked.End()
		},
		"no end": func(ctx context.Context, asked *wire.Served) error {
			if err := asked.Send(right); err != nil {
				return err
			}
			return errors.New("planted")
		},
		"a body that stops": func(ctx context.Context, asked *wire.Served) error {
			_ = asked.Send(right)
			<-ctx.Done()
			return ctx.Err()
		},
		"no answer": func(context.Context, *wire.Served) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			network := memory.NewNetwork()
			asking := start(t, memoryHost(t, network, asker), named("asker"), func(c *Config) {
				// A member that sends signs but no end is not silent, so the time ends the call.
				c.TimeoutMax = 2 * time.Second
			})
			raw(t, memoryHost(t, network, "member-1"), serve)
			start(t, memoryHost(t, network, "member-2"), named("two"), nil)
			_, got, err := post(within(t, patience), asking, "")
			if name == "a body that stops" {
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%q, %v", got, err)
				}
			} else if err != nil || !strings.HasPrefix(got, "two") {
				t.Fatalf("%q, %v", got, err)
			}
			await(t, "the end of what was reserved", func() bool {
				return asking.gathered.Used() == 0 && asking.requests.Status().Asking == 0
			})
		})
	}
}

// Calls that are wrong in form fail. Other calls are served.
func TestHostileCalls(t *testing.T) {
	t.Parallel()
	network := memory.NewNetwork()
	member := start(t, memoryHost(t, network, "member-1"), http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) { t.Error("served", r.URL) }), nil)
	hostile := raw(t, memoryHost(t, network, asker), unasked)
	right, err := encodeHead(http.MethodPost, "/a", http.Header{"Accept": {"x"}})
	if err != nil {
		t.Fatal(err)
	}
	put, _ := encodeHead(http.MethodPut, "/a", nil)
	relative, _ := encodeHead(http.MethodGet, "a", nil)
	for name, r := range map[string]wire.Request{
		"nothing":   {Kind: kindCall},
		"a kind":    {Kind: kindCall + 1, Head: right},
		"cut short": {Kind: kindCall, Head: right[:len(right)-1]},
		"too long":  {Kind: kindCall, Head: append(slices.Clone(right), 0)},
		"a method":  {Kind: kindCall, Head: put},
		"a target":  {Kind: kindCall, Head: relative},
	} {
		wake := make(chan struct{}, 1)
		r.Wake, r.AnswerMax, r.Deadline = wake, 1<<20, time.Now().Add(time.Minute)
		asked := hostile.Ask("member-1", r)
		receive(t, "the end", wake)
		if now := asked.Progress(); !errors.Is(now.Err, wire.ErrRefused) {
			t.Errorf("%s: %+v", name, now)
		}
		asked.Close()
	}
	await(t, "the end of serving", func() bool {
		return member.Status().Serving == 0 && member.inService.Used() == 0
	})
}

// unasked is the handler of a member that nobody asks.
func unasked(context.Context, *wire.Served) error { return io.EOF }
