package node

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/order"
)

// ErrRecovery reports that a shard cannot be recovered as its operator asked.
var ErrRecovery = errors.New("no recovery")

// generationsSkipped is how many generations a recovery skips. Lost homes may hold decisions that
// no home at hand knows. None of those may share its number with a new decision.
const generationsSkipped = 1000

// RecoveryOptions say what is left of a shard. Each member must appear in exactly one of them.
type RecoveryOptions struct {
	// Homes are the homes at hand. Their nodes do not run.
	Homes []*home.Home
	// Disks are the disks of members whose homes are on other machines, by the members' names.
	Disks map[string]ledger.DiskID
	// Lost names the members whose homes are gone: they leave the membership. Absent names the
	// members that stay as they are.
	Lost, Absent []string
	// Store returns the options to open a home's store.
	Store func(*home.Home) store.Options
}

// RecoveryHome is a home at hand, as a recovery sees it.
type RecoveryHome struct {
	*Holdings
	// Forgot is why the home's disk does not count, or "" if it counts.
	Forgot string
	// Forked reports that the home has blocks above the height Common that the furthest home does
	// not have.
	Forked bool
	Common ledger.Height

	home *home.Home
}

// RecoveryChange is a change of the membership by which a shard is recovered.
type RecoveryChange struct {
	Kind  ledger.ChangeKind  `json:"kind"`
	Index ledger.MemberIndex `json:"index"`
	Name  string             `json:"name"`
	// Disk is the admitted disk. It is zero if the home gets the disk only with the recovery.
	Disk ledger.DiskID `json:"disk,omitzero"`
	// Height is that of the block with the change, once there is one.
	Height ledger.Height `json:"height,omitempty"`
}

// Recovery says how a shard can continue after its majority forgot. PlanRecovery makes it and
// changes nothing.
//
// The shard continues from the furthest home. Blocks with changes of the membership follow its
// head. They name the disks that count from there on, and they stay in the chain as a trace of the
// recovery. The new head is taken as durable, since the disks that could confirm that forgot.
//
// A decision for a generation that no node knows yet says that the shard continues from the new
// head. The furthest home records that it took part in that generation. All other homes at hand
// record that the generation was decided. This voids their earlier promises and runs: those were
// made to disks that no longer count.
type Recovery struct {
	// Homes are the homes at hand, by index. From is the furthest of them.
	Homes []RecoveryHome
	From  *RecoveryHome
	// Members is the membership at the furthest head.
	Members ledger.Membership
	// Forms reports that the homes at hand form a group by themselves, so no recovery is needed.
	// Otherwise Waiting says what they lack.
	Forms   bool
	Waiting generation.Waiting
	// Durable is the highest block that any home knows to be durable. Seen is the highest block
	// that any home knows of. Blocks above the furthest head up to Seen are lost.
	Durable, Seen ledger.Height
	// Rounds is how many decided rounds a recovery executes first. The furthest home has not
	// executed them.
	Rounds int
	// Changes are the changes that a recovery would make. Refused is why it cannot, or nil.
	Changes []RecoveryChange
	Refused error

	charter ledger.Charter // at the furthest head
	options RecoveryOptions
	decided generation.Generation // of the recovery
	replays []replay
}

// ConfirmationWord returns the word that an operator types to confirm: the name of the member from
// whose home the shard continues.
func (r *Recovery) ConfirmationWord() string { return r.From.Name }

// PlanRecovery examines what is left of a shard and changes nothing. It returns ErrRecovery if the
// homes do not belong together, and the errors of the stores.
func PlanRecovery(options RecoveryOptions) (_ *Recovery, err error) {
	if len(options.Homes) == 0 {
		return nil, fmt.Errorf("%w: there is no home", ErrRecovery)
	}
	r := &Recovery{options: options}
	var stores []*store.Store
	defer func() {
		for _, opened := range stores {
			if opened != nil {
				err = errors.Join(err, opened.Close())
			}
		}
	}()
	homes := slices.Clone(options.Homes)
	slices.SortFunc(homes, func(a, b *home.Home) int { return cmp.Compare(a.Self, b.Self) })
	chain := homes[0].Genesis.Hash()
	for i, h := range homes {
		if h.Genesis.Hash() != chain {
			return nil, fmt.Errorf(
				"%w: %s and %s belong to different chains",
				ErrRecovery,
				homes[0].Dir,
				h.Dir,
			)
		}
		if i > 0 && h.Self == homes[i-1].Self {
			return nil, fmt.Errorf("%w: %s and %s belong to the same member: name only the home "+
				"that "+
				"is to run",
				ErrRecovery, homes[i-1].Dir, h.Dir)
		}
		held, opened, err := survey(h, options.Store(h))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.Dir, err)
		}
		stores = append(stores, opened)
		r.Homes = append(r.Homes, RecoveryHome{Holdings: held, home: h})
	}
	if err := r.compare(stores); err != nil {
		return nil, err
	}
	for i := range r.Homes {
		each := &r.Homes[i]
		each.Forgot = each.forgot(r.From.report.Membership, r.newest())
		r.Durable = max(r.Durable, each.Durable)
		r.Seen = max(r.Seen, each.seen())
	}
	furthest := slices.IndexFunc(r.Homes, func(h RecoveryHome) bool {
		return h.Index == r.From.Index
	})
	if r.replays, err = r.unexecuted(stores[furthest]); err != nil {
		return nil, err
	}
	r.Rounds = len(r.replays)
	r.Forms, r.Waiting = r.formsNow()
	if err := r.propose(); err != nil {
		r.Refused = err
	}
	return r, nil
}

// compare finds the furthest home, and the heights where the other chains part from its chain.
func (r *Recovery) compare(stores []*store.Store) error {
	furthest := 0
	for i := 1; i < len(r.Homes); i++ {
		further, err := r.further(stores, i, furthest)
		if err != nil {
			return err
		}
		if further {
			furthest = i
		}
	}
	r.From = &r.Homes[furthest]
	r.charter = r.From.charter
	if r.Members = r.From.Membership; !r.From.Blocks {
		r.Members = r.From.home.Genesis.Membership() // as the chain has it
		r.charter = r.From.home.Genesis.Charter()
	}
	for i := range r.Homes {
		common, err := commonHeight(stores[i], stores[furthest])
		if err != nil {
			return err
		}
		each := &r.Homes[i]
		each.Common, each.Forked = common, common < each.Head.Height
	}
	return nil
}

// further reports whether one home is further than another. If one chain extends the other, the
// longer one is further. If they part, the one known to be durable beyond that point is further;
// else the one of the later generation; else the longer one.
func (r *Recovery) further(stores []*store.Store, one, other int) (bool, error) {
	common, err := commonHeight(stores[one], stores[other])
	if err != nil {
		return false, err
	}
	a, b := r.Homes[one].Holdings, r.Homes[other].Holdings
	forked := common < min(a.Head.Height, b.Head.Height)
	if !forked {
		return a.Head.Height > b.Head.Height, nil
	}
	return cmp.Or(
		cmp.Compare(boolToInt(a.Durable > common), boolToInt(b.Durable > common)),
		cmp.Compare(a.Activated, b.Activated),
		cmp.Compare(a.Head.Height, b.Head.Height),
	) > 0, nil
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// commonHeight returns the last height at which two stores hold the same block. A nil store holds
// only the genesis.
func commonHeight(a, b *store.Store) (ledger.Height, error) {
	if a == nil || b == nil {
		return 0, nil
	}
	var failure error
	most := int(min(a.Head().Height, b.Head().Height))
	first := sort.Search(most+1, func(height int) bool {
		_, ours, err := a.Header(ledger.Height(height))
		_, theirs, other := b.Header(ledger.Height(height))
		failure = errors.Join(failure, err, other)
		return failure == nil && ours != theirs
	})
	return ledger.Height(max(first, 1) - 1), failure
}

// newest returns the newest decision that any home knows, or nil.
func (r *Recovery) newest() (newest *generation.Decision) {
	for i := range r.Homes {
		d := r.Homes[i].state.Decided
		if d != nil && (newest == nil || newest.Generation < d.Generation) {
			newest = d
		}
	}
	return newest
}

// forgot returns why a home's disk does not count under a membership, or "" if it counts.
func (held *Holdings) forgot(m generation.Membership, newest *generation.Decision) string {
	self, disk := order.ServerID(held.Index), generation.DiskID(held.Disk.ID)
	named := m.Disk(self)
	switch {
	case !m.Includes(self):
		return "it is no longer a member"
	case held.Disk.Renewed:
		return held.Disk.Learner
	case m.Counts(self, disk, held.Disk.Original):
		if named == (generation.DiskID{}) && newest != nil && newest.Includes(self) &&
			!newest.Seats(self, disk) {
			return "the newest generation knows it with another disk"
		}
		return ""
	case named == (generation.DiskID{}):
		return cmp.Or(held.Disk.Learner, "its disk is not the original one")
	}
	return cmp.Or(held.Disk.Learner, fmt.Sprintf("the chain has it count with disk %s", named))
}

// seen returns the highest block that a home knows of for certain. The home may not hold it.
func (held *Holdings) seen() ledger.Height {
	seen := max(uint64(held.Head.Height), held.state.Start.Height)
	if d := held.state.Decided; d != nil {
		seen = max(seen, d.Base.Height)
	}
	return ledger.Height(seen)
}

// formsNow reports whether the nodes of the homes at hand would form a group by themselves.
func (r *Recovery) formsNow() (bool, generation.Waiting) {
	var synods []synodHome
	for i := range r.Homes {
		each := &r.Homes[i]
		synods = append(synods, synodHome{
			self: order.ServerID(each.Index), original: each.Disk.Original && !each.Disk.Renewed,
			state: each.counted(), report: each.report,
		})
	}
	return wouldForm(synods)
}

// propose finds the changes that make a majority count again, or returns why none do.
func (r *Recovery) propose() error {
	for i := range r.Homes {
		r.decided = max(r.decided, r.Homes[i].state.Instance,
			r.Homes[i].state.Activated.Generation())
	}
	if d := r.newest(); d != nil {
		r.decided = max(r.decided, d.Generation)
	}
	r.decided += generationsSkipped
	if err := r.conflict(); err != nil {
		r.Forms = false // a node would end with shard.ErrFork
		return err
	}
	if _, member := r.Members.Find(r.From.Index); !member {
		return fmt.Errorf(
			"%w: %s holds the furthest chain, but is not a member: leave its home out, or start "+
				"a member with a copy of its data folder",
			ErrRecovery,
			r.From.Name,
		)
	}
	if err := r.withoutBlocks(); err != nil {
		return err
	}
	after, err := r.applyOperatorInput()
	if err != nil {
		return err
	}
	return r.wouldWork(after)
}

// conflict refuses two chains that part if nodes know blocks of both beyond that point to be
// durable.
func (r *Recovery) conflict() error {
	for i := range r.Homes {
		each := &r.Homes[i]
		if each.Durable > each.Common {
			return fmt.Errorf(
				"%w: %s and %s hold different blocks from %d on, and both know such blocks to "+
					"be durable: only you can decide which blocks stay; move the data folder of "+
					"the "+
					"other home to another place, keep it, and run this command again",
				ErrRecovery,
				each.Name,
				r.From.Name,
				each.Common+1,
			)
		}
	}
	return nil
}

// withoutBlocks refuses a furthest home that began with a snapshot and still lacks older blocks, if
// another home needs these blocks and no home has them.
func (r *Recovery) withoutBlocks() error {
	for i := range r.Homes {
		each := &r.Homes[i]
		served := each.Common >= r.From.absent ||
			slices.ContainsFunc(r.Homes, func(h RecoveryHome) bool {
				return h.Common >= r.From.absent && h.absent <= each.Common
			})
		if !served {
			return fmt.Errorf(
				"%w: %s needs blocks from %d on, and no home has them all, since %s began with a "+
					"snapshot: add the home of a member that has them, or use --lost %s",
				ErrRecovery,
				each.Name,
				each.Common+1,
				r.From.Name,
				each.Name,
			)
		}
	}
	return nil
}

// applyOperatorInput applies the operator's word on each member, and returns the membership after
// that.
func (r *Recovery) applyOperatorInput() (generation.Membership, error) {
	after := generation.Membership{Number: r.Members.Number}
	missing, counting := []string(nil), 0
	for i := range r.Members.Members {
		member := &r.Members.Members[i]
		at := slices.IndexFunc(r.Homes, func(h RecoveryHome) bool {
			return h.Index == member.Index
		})
		remote, elsewhere := r.options.Disks[member.Name]
		lost, absent := slices.Contains(
			r.options.Lost,
			member.Name,
		), slices.Contains(
			r.options.Absent,
			member.Name,
		)
		if said := boolToInt(at >= 0) + boolToInt(elsewhere) + boolToInt(lost) +
			boolToInt(absent); said > 1 {
			return after, fmt.Errorf(
				"%w: %s is named more than once: its home is at hand, on another machine, "+
					"lost, or absent",
				ErrRecovery,
				member.Name,
			)
		} else if said == 0 {
			missing = append(missing, member.Name)
			continue
		}
		if lost {
			r.Changes = append(
				r.Changes,
				RecoveryChange{Kind: ledger.ChangeLeave, Index: member.Index, Name: member.Name},
			)
			after.Number++
			continue
		}
		disk := member.Disk
		change := RecoveryChange{Kind: ledger.ChangeAdmit, Index: member.Index, Name: member.Name}
		switch {
		case at >= 0 && r.Homes[at].Forgot != "":
			if known := r.Homes[at].Disk; !known.Renewed {
				change.Disk = ledger.DiskID(known.ID)
			}
			disk = change.Disk
		case elsewhere && remote != member.Disk:
			change.Disk, disk = remote, remote
		default:
			change.Kind = 0
		}
		if change.Kind != 0 {
			r.Changes = append(r.Changes, change)
			after.Number++
		}
		counting += boolToInt(!absent)
		after.Members = append(after.Members, order.ServerID(member.Index))
		after.Disks = append(after.Disks, generation.DiskID(disk))
	}
	for _, name := range r.named() {
		if _, present := r.Members.ByName(name); !present {
			return after, fmt.Errorf(
				"%w: there is no member %s: the members are %s",
				ErrRecovery,
				name,
				r.names(),
			)
		}
	}
	if len(missing) > 0 {
		return after, fmt.Errorf(
			"%w: nothing is said of %s: name its home with --home, or its disk with --disk "+
				"if the home is on another machine; use --lost if it is gone for good, or "+
				"--absent if it may come back",
			ErrRecovery,
			strings.Join(missing, ", "),
		)
	}
	if counting < after.Quorum() {
		return after, fmt.Errorf(
			"%w: the disks of %d of %d members would count, and %d are needed: name more homes, "+
				"or remove members that are gone for good with --lost",
			ErrRecovery,
			counting,
			len(after.Members),
			after.Quorum(),
		)
	}
	return after, nil
}

func (r *Recovery) named() []string {
	named := append(slices.Clone(r.options.Lost), r.options.Absent...)
	for name := range r.options.Disks {
		named = append(named, name)
	}
	slices.Sort(named)
	return named
}

func (r *Recovery) names() string {
	var names []string
	for i := range r.Members.Members {
		names = append(names, r.Members.Members[i].Name)
	}
	return strings.Join(names, ", ")
}

// wouldWork checks that the nodes form a group after the recovery, before anything is changed. It
// runs the same machines that decide this in the nodes.
func (r *Recovery) wouldWork(after generation.Membership) error {
	for i := range after.Disks { // the homes get these disks only with the recovery
		at := slices.IndexFunc(
			r.Homes,
			func(h RecoveryHome) bool { return order.ServerID(h.Index) == after.Members[i] },
		)
		if at >= 0 && r.Homes[at].Forgot != "" && after.Disks[i] == (generation.DiskID{}) {
			_, _ = rand.Read(after.Disks[i][:]) // never fails
		}
	}
	head := generation.Head{
		Height: uint64(r.From.Head.Height) + uint64(len(r.Changes)),
		Hash:   [32]byte{1},
	}
	head.Round = r.From.report.Head.Round + order.Round(ledger.ChangeRounds*len(r.Changes))
	var synods []synodHome
	decision := r.decision(after, head)
	for _, server := range after.Members {
		at := slices.IndexFunc(
			r.Homes,
			func(h RecoveryHome) bool { return order.ServerID(h.Index) == server },
		)
		if !decision.Includes(server) {
			continue
		}
		s := synodHome{
			self:  server,
			state: generation.State{Disk: decision.Disks[slices.Index(decision.Members, server)]},
		}
		s.report.Membership = r.From.report.Membership
		if at >= 0 {
			each := &r.Homes[at]
			s.report, s.original = each.report, each.Disk.Original && each.Forgot == ""
			s.state = r.state(each.Index == r.From.Index, s.state.Disk, decision, after)
		}
		if at >= 0 && r.Homes[at].Index == r.From.Index {
			s.report = generation.Report{Head: head, Membership: after, Durable: head.Height}
		}
		synods = append(synods, s)
	}
	if forms, waiting := wouldForm(synods); !forms {
		return fmt.Errorf("%w: the nodes would not form a group even after these changes: %+v",
			ErrRecovery, waiting)
	}
	return nil
}

// decision returns the decision that the shard continues from a head.
func (r *Recovery) decision(after generation.Membership, head generation.Head) generation.Decision {
	d := generation.Decision{Generation: r.decided, Base: head}
	// No home's head is of that generation. So only homes that hold the base count as holding it.
	d.Base.Generation = r.decided - 1
	for i, server := range after.Members {
		at := slices.IndexFunc(
			r.Homes,
			func(h RecoveryHome) bool { return order.ServerID(h.Index) == server },
		)
		disk := after.Disks[i]
		switch {
		case at >= 0 && disk == (generation.DiskID{}):
			disk = generation.DiskID(r.Homes[at].Disk.ID)
		case at < 0 && r.options.Disks[r.nameOf(server)].IsZero():
			continue // absent
		}
		d.Members, d.Disks = append(d.Members, server), append(d.Disks, disk)
	}
	return d
}

func (r *Recovery) nameOf(server order.ServerID) string {
	member, _ := r.Members.Find(ledger.MemberIndex(server))
	return member.Name
}

// state returns a home's promises and knowledge after the recovery.
func (r *Recovery) state(furthest bool, disk generation.DiskID, d generation.Decision,
	after generation.Membership) generation.State {
	state := generation.State{Disk: disk, Instance: d.Generation, Decided: &d}
	if furthest {
		// Its run is the newest of all and counts with the new membership. So no node asks for a
		// majority of an earlier run, whose disks forgot.
		state.Activated, state.Shard, state.Start = generation.NewRun(d.Generation, 0), after,
			d.Base
	}
	return state
}

// Recovered is the result of a recovery.
type Recovered struct {
	Changes    []RecoveryChange
	Generation generation.Generation
	Head       store.Head
}

// Operator signs the changes of a recovery, with a key that may be elsewhere.
type Operator struct {
	Key ledger.PublicKey
	// Sign adds the signature of the key to a bundle.
	Sign func(bundle *ledger.Bundle) error
}

// NewOperator returns the operator who has this key.
func NewOperator(key ed25519.PrivateKey) *Operator {
	return &Operator{Key: ledger.PublicKey(key.Public().(ed25519.PublicKey)),
		Sign: func(bundle *ledger.Bundle) error { return bundle.Sign(ledger.Operator, key) }}
}

// Do recovers the shard. The operators are as many as have to sign. There may be none if no
// operator has to sign: for a shard of one member, and for a chain without operators. An
// interrupted recovery can be planned and done again. Errors: ErrRecovery, home.ErrLocked if a node
// was started meanwhile, and those of stores and files.
func (r *Recovery) Do(operators ...*Operator) (_ *Recovered, err error) {
	switch {
	case r.Forms:
		return nil, fmt.Errorf(
			"%w: it is not needed, since the nodes form a group by themselves",
			ErrRecovery,
		)
	case r.Refused != nil:
		return nil, r.Refused
	}
	for i := range r.Changes {
		if _, err := r.signers(&r.Changes[i], operators); err != nil {
			return nil, err
		}
	}
	var disks []*home.Disk
	defer func() {
		for _, disk := range disks {
			err = errors.Join(err, disk.Close())
		}
	}()
	changes := slices.Clone(r.Changes)
	for i := range r.Homes {
		each := &r.Homes[i]
		// OpenDisk settles the identity, and keeps the node from starting.
		disk, err := each.home.OpenDisk()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", each.Home, err)
		}
		disks = append(disks, disk)
		if each.settledOtherwise(disk) {
			return nil, fmt.Errorf(
				"%w: %s changed meanwhile: look at the homes again",
				ErrRecovery,
				each.Home,
			)
		}
		each.Disk = disk
		for j := range changes {
			if changes[j].Kind == ledger.ChangeAdmit && changes[j].Index == each.Index {
				changes[j].Disk = ledger.DiskID(disk.ID)
			}
		}
	}
	done := &Recovered{Changes: changes, Generation: r.decided}
	after, err := r.appendChanges(done, operators)
	if err != nil {
		return nil, err
	}
	head := generation.Head{
		Height: uint64(done.Head.Height),
		Hash:   done.Head.Hash,
		Round:  order.Round(done.Head.Round),
	}
	decision := r.decision(after, head)
	for i := range r.Homes {
		each := &r.Homes[i]
		state := r.state(each.Index == r.From.Index, generation.DiskID(each.Disk.ID), decision,
			after)
		if err := home.WriteFile(each.home.Generation(), state.Encode(), 0o644); err != nil {
			return nil, err
		}
	}
	return done, nil
}

// settledOtherwise reports whether a disk turned out not to be the expected one.
func (h *RecoveryHome) settledOtherwise(disk *home.Disk) bool {
	if h.Disk.Renewed || h.Disk.ID.IsZero() {
		return disk.Original == h.Disk.Renewed
	}
	return disk.ID != h.Disk.ID
}

// signers returns what signs a change: as many different operators as the charter asks for, or the
// key of a home.
func (r *Recovery) signers(
	change *RecoveryChange,
	operators []*Operator,
) ([]*Operator, error) {
	charter := &r.charter
	var distinct []*Operator
	for _, operator := range operators {
		if !charter.IsOperator(operator.Key) {
			return nil, fmt.Errorf("%w: a key does not belong to an operator of chain %s",
				ErrRecovery, r.From.home.Genesis.Chain)
		}
		if !slices.ContainsFunc(distinct, func(other *Operator) bool {
			return other.Key == operator.Key
		}) {
			distinct = append(distinct, operator)
		}
	}
	if len(distinct) >= charter.Threshold {
		return distinct, nil
	}
	if change.Kind == ledger.ChangeAdmit &&
		(len(charter.Operators) == 0 || len(r.Members.Members) == 1) {
		for i := range r.Homes {
			key := r.Homes[i].home.Key
			if r.Members.MayAdmit(ledger.PublicKey(key.Public().(ed25519.PublicKey)),
				change.Index) {
				return []*Operator{NewOperator(key)}, nil
			}
		}
	}
	return nil, fmt.Errorf(
		"%w: %s has to sign: name the files with their keys (--operator); %d signed",
		ErrRecovery, charter.Signers(), len(distinct),
	)
}

// appendChanges appends the changes to the furthest home's chain, one block each, and returns the
// membership after them.
func (r *Recovery) appendChanges(done *Recovered, operators []*Operator) (
	after generation.Membership, err error) {
	at := r.From
	opened, err := store.Open(at.home.Data(), at.home.Genesis, r.options.Store(at.home))
	if err != nil {
		return after, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	if at.Blocks && opened.Head() != at.Head {
		return after, fmt.Errorf(
			"%w: %s changed meanwhile: look at the homes again",
			ErrRecovery,
			at.Home,
		)
	}
	if err := at.Disk.Confirm(); err != nil {
		return after, err
	}
	if err := r.replayTail(opened); err != nil {
		return after, err
	}
	r.charter = opened.Charter() // the tail may have changed it
	for i := range done.Changes {
		if err := r.appendChange(opened, &done.Changes[i], operators); err != nil {
			return after, err
		}
	}
	done.Head = opened.Head()
	opened.RecordDurable(done.Head.Height)
	opened.SettleDoubt() // the shard continues from here, whatever else this disk perhaps announced
	return synodMembership(opened.Membership()), nil
}

func (r *Recovery) appendChange(
	opened *store.Store,
	change *RecoveryChange,
	operators []*Operator,
) error {
	signers, err := r.signers(change, operators)
	if err != nil {
		return err
	}
	head, members := opened.Head(), opened.Membership()
	var bundle *ledger.Bundle
	if change.Kind == ledger.ChangeAdmit {
		bundle, err = ledger.NewAdmission(
			opened.GenesisHash(),
			&members,
			change.Index,
			change.Disk,
			head.Height,
		)
	} else {
		bundle, err = newLeave(opened, change.Index)
	}
	for i := 0; i < len(signers) && err == nil; i++ {
		err = signers[i].Sign(bundle)
	}
	if err != nil {
		return err
	}
	round := head.Round + 1
	if members.Number > 0 {
		round = max(round, members.Round+ledger.ChangeRounds)
	}
	header := ledger.BatchHeader{Time: ledger.NoTime, Height: head.Height, Tip: head.Hash}
	block, err := opened.Apply(
		head.Epoch,
		round,
		[][]byte{ledger.EncodeBatch(header, [][]byte{bundle.Encode()})},
	)
	if err != nil {
		return err
	}
	if block == nil || block.MembershipChange() == nil {
		why := "nothing was executed"
		if block != nil {
			first := block.Entry(0)
			why = first.Result.Code.String()
		}
		return fmt.Errorf("%w: the change of %s was refused: %s", ErrRecovery, change.Name, why)
	}
	change.Height = block.Header.Height
	return nil
}

// newLeave returns the bundle that removes a member, without a signature.
func newLeave(
	opened *store.Store,
	index ledger.MemberIndex,
) (*ledger.Bundle, error) {
	var stream [8]byte
	_, _ = rand.Read(stream[:]) // never fails
	nonce := ledger.Nonce{Stream: binary.BigEndian.Uint64(stream[:]) >> 1}
	nonce.Sequence = opened.NextSequence(ledger.Operator, nonce.Stream)
	return ledger.NewBundle(ledger.Transaction{
		Ledger: opened.GenesisHash(), Nonce: nonce,
		LastValid: opened.Head().Height + ledger.AdmitLife,
		Change:    &ledger.MembershipChange{Kind: ledger.ChangeLeave, Index: index},
	})
}
