package fabrictest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// RunPrompt is Run with all receivers registered as prompt ones, for the named cases or all. The
// hosts must be PromptHosts.
func RunPrompt(t *testing.T, factory Factory, names ...string) {
	run(t, prompt(factory, nil), slices.DeleteFunc(Cases(), func(c Case) bool {
		return len(names) > 0 && !slices.Contains(names, c.Name)
	}))
}

// CheckPrompt plays the named case with prompt receivers into which plant has planted a fault. It
// returns what the case finds.
func CheckPrompt(t *testing.T, factory Factory, name string,
	plant func(*rdmanet.PromptReceiver)) error {
	cases := Cases()
	i := slices.IndexFunc(cases, func(c Case) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("there is no case %q", name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), faultTimeout)
	defer cancel()
	return cases[i].Check(ctx, prompt(factory, plant)(t, cases[i].Config))
}

// faultTimeout bounds a case that must find a fault, because it may find it by waiting in vain.
const faultTimeout = 20 * time.Second

// prompt makes the hosts of a factory register all receivers as prompt ones. If plant is set, it
// changes each of these.
func prompt(factory Factory, plant func(*rdmanet.PromptReceiver)) Factory {
	return func(t testing.TB, config Config) Fabric {
		return promptFabric{factory(t, config), plant}
	}
}

type promptFabric struct {
	Fabric
	plant func(*rdmanet.PromptReceiver)
}

func (f promptFabric) Start(i int) (rdmanet.Host, error) { return f.wrap(f.Fabric.Start(i)) }

func (f promptFabric) Stranger() (rdmanet.Host, error) { return f.wrap(f.Fabric.Stranger()) }

func (f promptFabric) wrap(h rdmanet.Host, err error) (rdmanet.Host, error) {
	if h == nil || err != nil {
		return h, err
	}
	return promptHost{h.(rdmanet.PromptHost), f.plant}, nil
}

type promptHost struct {
	rdmanet.PromptHost
	plant func(*rdmanet.PromptReceiver)
}

func (h promptHost) Receive(lane string, receive rdmanet.ReceiveFunc) error {
	d := &divided{receive: receive, running: make(map[rdmanet.PeerID]*dividedCall)}
	receiver := rdmanet.PromptReceiver{TryReceive: d.tryReceive, Receive: d.wait, Turn: func() {}}
	if h.plant != nil {
		h.plant(&receiver)
	}
	return h.ReceivePrompt(lane, receiver)
}

// dividedPatience is how long a divided receiver waits for the function behind it. It is short
// beside all timeouts of the cases.
const dividedPatience = 5 * time.Millisecond

// divided makes a prompt receiver of any receive function. It takes a part of the frames if the
// function returns soon, in turns all of them, all but one, half of them and none.
type divided struct {
	receive rdmanet.ReceiveFunc

	mu      sync.Mutex
	running map[rdmanet.PeerID]*dividedCall // calls that have not returned soon
	count   int
}

type dividedCall struct {
	frames int
	done   chan struct{}
}

func (d *divided) tryReceive(from rdmanet.Peer, frames [][]byte) int {
	d.mu.Lock()
	d.count++
	part := []int{len(frames), len(frames) - 1, len(frames) / 2, 0}[d.count%4]
	d.mu.Unlock()
	if part == 0 {
		return 0
	}
	call := &dividedCall{frames: part, done: make(chan struct{})}
	lent := slices.Clone(frames[:part])
	go func() {
		defer close(call.done)
		d.receive(from, lent)
	}()
	select {
	case <-call.done:
		return part
	case <-time.After(dividedPatience):
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running[from.ID] = call
	return 0
}

// wait takes the frames that tryReceive left. It waits for a call that has begun with some of them.
func (d *divided) wait(from rdmanet.Peer, frames [][]byte) {
	d.mu.Lock()
	call := d.running[from.ID]
	delete(d.running, from.ID)
	d.mu.Unlock()
	if call != nil {
		<-call.done
		frames = frames[call.frames:]
	}
	if len(frames) > 0 {
		d.receive(from, frames)
	}
}
