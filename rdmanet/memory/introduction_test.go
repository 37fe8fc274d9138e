package memory_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// A stranger can introduce itself to a host that does not admit it, unless the link is cut.
func TestIntroductions(t *testing.T) {
	t.Parallel()
	network := memory.NewNetwork()
	hosts := map[rdmanet.PeerID]*memory.Host{}
	for _, id := range []rdmanet.PeerID{"host", "stranger"} {
		h, err := network.Host(id)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.Close(context.Background()) })
		hosts[id] = h
	}
	host, stranger := hosts["host"], hosts["stranger"]
	introduce := func(what string, to rdmanet.PeerID, said []byte, want error) {
		t.Helper()
		answer, err := stranger.Introduce(t.Context(), to, said)
		if !errors.Is(err, want) || (err == nil) != (string(answer) == "hello me") {
			t.Errorf("%s: %q, %v", what, answer, err)
		}
	}
	if err := errors.Join(host.SetMembers(map[rdmanet.PeerID]string{"another": ""}),
		stranger.SetMembers(map[rdmanet.PeerID]string{"host": "", "nobody": ""})); err != nil {
		t.Fatal(err)
	}
	introduce("before the host takes introductions", "host", nil, rdmanet.ErrUnreachable)
	if err := host.Introduced(func(from string, read func() ([]byte, error)) ([]byte, error) {
		said, err := read()
		if from != "stranger" || string(said) == "nonsense" {
			return nil, errors.New("not believed")
		}
		return append([]byte("hello "), said...), err
	}); err != nil {
		t.Fatal(err)
	}
	introduce("a stranger", "host", []byte("me"), nil)
	introduce("nonsense", "host", []byte("nonsense"), rdmanet.ErrUnreachable)
	introduce("too large", "host", make([]byte, rdmanet.IntroductionMax+1), rdmanet.ErrTooLarge)
	introduce("an answer that is too large", "host", make([]byte, rdmanet.IntroductionAnswerMax),
		rdmanet.ErrUnreachable)
	introduce("to one that it does not know", "another", nil, rdmanet.ErrNotMember)
	introduce("to one that is not there", "nobody", nil, rdmanet.ErrUnreachable)
	network.Cut("host", "stranger")
	introduce("over a link that is cut", "host", []byte("me"), rdmanet.ErrUnreachable)
	network.Mend("host", "stranger")
	if err := host.Introduced(nil); !errors.Is(err, rdmanet.ErrDuplicate) {
		t.Errorf("a second function: %v", err)
	}
	if err := host.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	introduce("to a host that is closed", "host", []byte("me"), rdmanet.ErrUnreachable)
	if err := host.Introduced(nil); !errors.Is(err, rdmanet.ErrClosed) {
		t.Errorf("a function of a closed host: %v", err)
	}
}
