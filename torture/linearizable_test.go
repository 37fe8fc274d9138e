//go:build linux

package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/anishathalye/porcupine"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// The model.
//
// The ledger's order is linearizable. A transaction takes effect at one moment between its
// submission and its acknowledgement as ordered, at whatever node. Its outcome shows the effect of
// all transactions before it. A read is served by one node from its own store and may be old. But a
// node shows at once what it has acknowledged. So a client that wants to read the present state
// writes first: an empty transaction (a barrier) through the node that it reads from. Everything
// acknowledged anywhere before is ordered before the barrier. So it is in that node's store once
// the barrier is.
//
// There are a few registers, each with an account and a record of its own:
//
//	deposit(x)   pays x into the account; always succeeds
//	withdraw(x)  takes x out; succeeds exactly if the balance is at least x (else no change)
//	write(v)     sets the record
//	read         a barrier, then the record, both at one node
//
// If a transaction's node dies, the same bytes are submitted to another node, until the outcome is
// known. If a read's node dies, the read is dropped.

// action is the input of an operation on one register.
type action struct {
	register int
	kind     string // deposit, withdraw, write, read
	amount   int64
	value    string
	name     string // that of its transaction, if it is no read
}

// effect is the output of an operation.
type effect struct {
	done  bool   // for withdraw: whether the balance was sufficient
	value string // for read; "" if there was no record
}

// register is the state of one register.
type register struct {
	balance int64
	value   string
}

// step is the sequential model.
func step(from register, in action, out effect) (bool, register) {
	switch in.kind {
	case "deposit":
		from.balance += in.amount
		return out.done, from
	case "withdraw":
		if from.balance < in.amount {
			return !out.done, from
		}
		from.balance -= in.amount
		return out.done, from
	case "write":
		from.value = in.value
		return out.done, from
	default:
		return out.value == from.value, from
	}
}

var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byRegister := map[int][]porcupine.Operation{}
		for _, operation := range history {
			k := operation.Input.(action).register
			byRegister[k] = append(byRegister[k], operation)
		}
		var parts [][]porcupine.Operation
		for _, part := range byRegister {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return register{} },
	Step: func(state, input, output any) (bool, any) {
		ok, next := step(state.(register), input.(action), output.(effect))
		return ok, next
	},
	DescribeOperation: func(input, output any) string {
		return fmt.Sprintf("%+v -> %+v", input, output)
	},
}

// history is the operations that clients observed.
type history struct {
	begun time.Time
	mutex sync.Mutex
	list  []porcupine.Operation
	// heights are the blocks that the acknowledgements named, and unknown why others were not
	// recorded, by name.
	heights map[string]uint64
	unknown map[string]error
}

// note keeps a transaction's status or error, for explain.
func (h *history) note(name string, status *ledgerdv1.TransactionStatus, err error) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.heights[name] = status.GetHeight(); err != nil {
		h.unknown[name] = err
	}
}

// record runs an operation and records it, unless its outcome is unknown and it had no effect.
func (h *history) record(who int, in action, do func() (effect, bool)) {
	call := time.Since(h.begun).Nanoseconds()
	out, known := do()
	end := time.Since(h.begun).Nanoseconds()
	if !known {
		return
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.list = append(h.list, porcupine.Operation{ClientId: who, Input: in, Call: call, Output: out,
		Return: end})
}

// check checks that the history has a linearization.
func (h *history) check() error {
	if result := porcupine.CheckOperationsTimeout(model, h.list,
		time.Minute); result != porcupine.Ok {
		return fmt.Errorf("the history of %d operations is not linearizable (%v)", len(h.list),
			result)
	}
	return nil
}

// actor is a client that performs random operations, at a node of its own as long as that lives.
type actor struct {
	*party
	number  int
	reader  *client.Client // asks only this node
	history *history
	level   ledgerdv1.Level // the level that it waits for
	t       *testing.T
}

func (a *actor) live(ctx context.Context, random *rand.Rand, registers int) {
	for k := 0; ctx.Err() == nil; k++ {
		in := action{register: random.IntN(registers)}
		switch random.IntN(4) {
		case 0:
			in.kind, in.amount = "deposit", 1+random.Int64N(5)
		case 1:
			in.kind, in.amount = "withdraw", 1+random.Int64N(9)
		case 2:
			in.kind, in.value = "write", fmt.Sprintf("%d of actor %d", k, a.number)
		default:
			in.kind = "read"
		}
		in.name = fmt.Sprintf("%d of actor %d", k, a.number)
		a.history.record(a.number, in, func() (effect, bool) { return a.act(ctx, in) })
	}
}

func (a *actor) act(ctx context.Context, in action) (out effect, known bool) {
	account, record := "account-"+strconv.Itoa(in.register), "record-"+strconv.Itoa(in.register)
	var transaction ledger.Transaction
	switch in.kind {
	case "deposit":
		transaction = a.transfer("bank", account, in.amount)
	case "withdraw":
		transaction = a.transfer(account, "bank", in.amount)
	case "write":
		transaction = a.put(record, in.value)
	default:
		return a.read(ctx, record)
	}
	// Two clients may draw one stream of nonces. Equal transactions with equal nonces would then be
	// one transaction, acknowledged twice.
	transaction.Note = []byte(in.name)
	// The judge needs the outcome, even if it becomes known after the actors' time is over.
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	status, err := a.nodes.Post(patient, []client.Key{a.Key}, transaction, a.level)
	a.history.note(in.name, status, err)
	switch {
	case errors.Is(err, client.ErrUnreachable) && !errors.Is(err, client.ErrOutcomeUnknown):
		// All nodes were down and none accepted it, so it was not done.
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
		return effect{}, false
	case err != nil:
		a.t.Errorf("actor %d: %+v: %v", a.number, in, err)
		return effect{}, false
	case status.GetReasonCode() == api.ReasonCode(ledger.InsufficientFunds):
		return effect{}, true
	case status.GetReasonCode() != "":
		a.t.Errorf("actor %d: %+v: %v", a.number, in, status)
	}
	return effect{done: true}, true
}

func (a *actor) read(ctx context.Context, record string) (effect, bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !a.barrier(ctx) {
		return effect{}, false
	}
	answer, err := a.reader.Record(ctx, a.record(record))
	if err != nil && client.CodeOf(err) != connect.CodeNotFound {
		return effect{}, false
	}
	// The value read may only be ordered, and may still be given up. A durable transaction after it
	// settles that.
	if a.level == ledgerdv1.Level_LEVEL_DURABLE && !a.barrier(ctx) {
		return effect{}, false
	}
	return effect{value: string(answer.GetRecord().GetValue())}, true
}

// barrier gets an empty transaction ordered, or durable, through the node that is read from.
func (a *actor) barrier(ctx context.Context) bool {
	barrier := ledger.Transaction{Note: []byte("barrier")}
	status, err := a.at(a.reader).nodes.Post(ctx, []client.Key{a.Key}, barrier, a.level)
	return err == nil && status.GetReasonCode() == ""
}

// crowd is a set of actors at several nodes, and their history.
type crowd struct {
	s        *shard
	owner    *party
	history  *history
	stopping context.CancelFunc
	running  sync.WaitGroup
}

// registers is the number of registers that the actors share.
const registers = 3

// newCrowd starts the given number of actors at the nodes.
func (s *shard) newCrowd(actors int, level ledgerdv1.Level) *crowd {
	s.t.Helper()
	nodes := len(s.homes)
	random := rand.New(rand.NewPCG(*seedFlag, 1))
	accounts := []string{"bank"}
	for k := range registers {
		accounts = append(accounts, "account-"+strconv.Itoa(k))
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &crowd{
		s: s, owner: s.newParty("acme", accounts, 0),
		history: &history{begun: time.Now(), heights: map[string]uint64{},
			unknown: map[string]error{}}, stopping: cancel,
	}
	s.t.Cleanup(cancel)
	s.same(s.all()...) // a node that is behind knows no account yet
	for k := range actors {
		at := k % nodes
		reader, err := client.New(s.urls(at), client.Options{Tries: 1})
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(reader.Close)
		writer := c.owner.at(s.clientOf(append([]int{at}, s.others(at)...)...))
		a := &actor{writer, k, reader, c.history, level, s.t}
		own := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
		c.running.Go(func() { a.live(ctx, own, registers) })
	}
	return c
}

// progress waits for the given number of further operations.
func (c *crowd) progress(more int) {
	c.s.t.Helper()
	h := c.history
	h.mutex.Lock()
	from := len(h.list)
	h.mutex.Unlock()
	c.s.eventually("the clients get on", func() error {
		h.mutex.Lock()
		defer h.mutex.Unlock()
		if len(h.list) < from+more {
			return fmt.Errorf("%d of %d operations", len(h.list)-from, more)
		}
		return nil
	})
}

// judge stops the actors. It checks that their history is linearizable, and all money at each node.
func (c *crowd) judge(which ...int) {
	c.s.t.Helper()
	c.stopping()
	c.running.Wait()
	c.s.same(which...)
	h := c.history
	if err := h.check(); err != nil {
		c.s.t.Error(err)
	}
	c.s.t.Logf("%d operations in %v", len(h.list), time.Since(h.begun).Round(time.Millisecond))
	c.s.conserved(c.owner, h.list, which...)
	c.s.exports(which...)
	if c.s.t.Failed() {
		c.explain(which[0])
	}
}

// explain kills a node, and says which transactions its chain has in another way than the clients
// were told.
func (c *crowd) explain(i int) {
	c.s.t.Helper()
	type entry struct {
		Note, Outcome, ID string
		Height            uint64
	}
	c.s.kill(i)
	o := ledgerdWith(c.s.t, c.s.environment, "export", "--home", c.s.homes[i].Dir, "--journal")
	chain := map[string]entry{}
	for line := range strings.Lines(o.out) {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			c.s.t.Errorf("%s: %v", line, err)
		}
		had, twice := chain[e.Note]
		if twice && e.Note != "" {
			c.s.t.Logf("%s is there twice: %+v and %+v", e.Note, had, e)
		}
		if had.Outcome != "applied" {
			chain[e.Note] = e
		}
	}
	h := c.history
	for _, operation := range h.list {
		in, out := operation.Input.(action), operation.Output.(effect)
		e := chain[in.name]
		delete(chain, in.name)
		if in.kind != "read" &&
			((e.Outcome == "applied") != out.done || e.Height != h.heights[in.name]) {
			c.s.t.Logf("actor %d was told %+v of %+v in block %d, %v to %v; the chain has %+v",
				operation.ClientId, out, in, h.heights[in.name], time.Duration(operation.Call),
				time.Duration(operation.Return), e)
		}
	}
	for name, e := range chain {
		if strings.Contains(name, "actor") && e.Outcome == "applied" {
			c.s.t.Logf("no client was told of %+v: %v", e, h.unknown[name])
		}
	}
}

// TestLinearizable checks the history of clients at several nodes, while nodes are killed and come
// back.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	const nodes, actors = 5, 8
	kills := [][]int{{1}, {3, 0}} // at once
	if testing.Short() {
		kills = kills[:1]
	}
	t.Logf("-seed %d", *seedFlag)
	s := newRunningShard(t, nodes)
	c := s.newCrowd(actors, ledgerdv1.Level_LEVEL_ORDERED)
	c.progress(100)
	for _, victims := range kills {
		s.kill(victims...)
		c.progress(100)
		s.start(victims...)
		s.ordering(s.all()...)
		c.progress(50)
	}
	c.judge(s.all()...)
}

// TestLinearizablePauses checks the same while nodes are paused for longer than the others wait for
// them, and while nodes join and leave.
func TestLinearizablePauses(t *testing.T) {
	t.Parallel()
	const nodes, actors, leaver = 4, 8, 1
	t.Logf("-seed %d", *seedFlag)
	s := newRunningShard(t, nodes)
	c := s.newCrowd(actors, ledgerdv1.Level_LEVEL_ORDERED)
	c.progress(100)
	for _, paused := range []int{3, 0} {
		s.signal(syscall.SIGSTOP, paused)
		s.ordering(s.others(paused)...)
		c.progress(50)
		s.signal(syscall.SIGCONT, paused)
		s.ordering(s.all()...)
		c.progress(50)
	}
	joiner := s.join(2)
	s.start(joiner)
	s.ordering(s.all()...)
	c.progress(100)
	operator := filepath.Join(s.dir, testnet.OperatorKeyFile)
	succeed(t, "cluster", "leave", testnet.Name(leaver), "--via", testnet.URL(s.homes[0]),
		"--operator", operator)
	left := s.others(leaver)
	s.ordering(left...)
	c.progress(50)
	s.signal(syscall.SIGSTOP, joiner)
	s.ordering(s.others(leaver, joiner)...)
	c.progress(50)
	s.signal(syscall.SIGCONT, joiner)
	s.ordering(left...)
	c.judge(left...)
}

// TestLinearizableCuts checks durable transactions while the power of some nodes and of all fails,
// and while a disk forgets.
func TestLinearizableCuts(t *testing.T) {
	t.Parallel()
	const nodes, actors = 5, 10
	t.Logf("-seed %d", *seedFlag)
	random := rand.New(rand.NewPCG(*seedFlag, 3))
	s := newShardOnVolumes(t, nodes)
	s.start(s.all()...)
	s.ordering(s.all()...)
	c := s.newCrowd(actors, ledgerdv1.Level_LEVEL_DURABLE)
	c.progress(100)
	cuts := [][]int{{1}, s.all(), {3, 0}, {0, 1, 2}, s.all()}
	if testing.Short() {
		cuts = cuts[:2]
	}
	for k, victims := range cuts {
		s.cut(random, victims...)
		if k == len(cuts)-1 {
			s.remove(s.homes[2].Data())
		}
		if 2*len(victims) < nodes {
			c.progress(50)
		}
		s.start(victims...)
		s.ordering(s.all()...)
		c.progress(50)
	}
	c.judge(s.all()...)
}

// conserved checks that every account has the balance of the history, and that all balances add up
// to zero.
func (s *shard) conserved(owner *party, list []porcupine.Operation, which ...int) {
	s.t.Helper()
	want := map[string]int64{}
	for _, operation := range list {
		in, out := operation.Input.(action), operation.Output.(effect)
		account := "account-" + strconv.Itoa(in.register)
		amount := in.amount
		if in.kind == "withdraw" {
			amount = -amount
		}
		if out.done {
			want[account] += amount
			want["bank"] -= amount
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, i := range which {
		sum := int64(0)
		for k := range registers + 1 {
			name := "bank"
			if k < registers {
				name = "account-" + strconv.Itoa(k)
			}
			account, err := s.nodes[i].Account(ctx, owner.account(name))
			if err != nil {
				s.t.Fatal(err)
			}
			got := int64(0)
			for _, balance := range account.GetBalances() {
				if got, err = strconv.ParseInt(balance.GetAmount(), 10, 64); err != nil {
					s.t.Fatal(err)
				}
			}
			if sum += got; got != want[name] {
				s.t.Errorf("node %d: %s holds %d, the acknowledged operations make it %d", i,
					name, got, want[name])
			}
		}
		if sum != 0 {
			s.t.Errorf("node %d: all accounts together hold %d", i, sum)
		}
	}
}

// TestCheckerCatches proves the checker on histories that are wrong.
func TestCheckerCatches(t *testing.T) {
	t.Parallel()
	operation := func(in action, out effect, call, end int64) porcupine.Operation {
		return porcupine.Operation{Input: in, Output: out, Call: call, Return: end}
	}
	write := func(value string, call, end int64) porcupine.Operation {
		return operation(action{kind: "write", value: value}, effect{done: true}, call, end)
	}
	read := func(value string, call, end int64) porcupine.Operation {
		return operation(action{kind: "read"}, effect{value: value}, call, end)
	}
	deposit := func(amount, call, end int64) porcupine.Operation {
		return operation(action{kind: "deposit", amount: amount}, effect{done: true}, call, end)
	}
	withdraw := func(amount int64, done bool, call, end int64) porcupine.Operation {
		return operation(action{kind: "withdraw", amount: amount}, effect{done: done}, call, end)
	}
	for _, test := range []struct {
		name string
		list []porcupine.Operation
		ok   bool
	}{
		{"reads see writes", []porcupine.Operation{write("a", 1, 2), read("a", 3, 4),
			write("b", 5, 8), read("a", 6, 7), read("b", 9, 10)}, true},
		{"old read", []porcupine.Operation{write("a", 1, 2), write("b", 3, 4), read("a", 5, 6)},
			false},
		{"reads go back", []porcupine.Operation{write("a", 1, 2), write("b", 3, 10),
			read("b", 4, 5), read("a", 6, 7)}, false},
		{"lost write", []porcupine.Operation{write("a", 1, 2), read("", 3, 4)}, false},
		{"spent twice", []porcupine.Operation{deposit(5, 1, 2), withdraw(4, true, 3, 6),
			withdraw(4, true, 4, 5)}, false},
		{"lost deposit", []porcupine.Operation{deposit(5, 1, 2), withdraw(4, false, 3, 4)}, false},
		{"one of two", []porcupine.Operation{deposit(5, 1, 2), withdraw(4, true, 3, 6),
			withdraw(4, false, 4, 5)}, true},
	} {
		if err := (&history{list: test.list}).check(); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}
