package importer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// MaxOrganisations bounds Options.Organisations: a bundle has room for that many signatures.
const MaxOrganisations = ledger.MaxBundleSignatures

// ErrOrganisations means that the accounts of an organisation were spread over another number of
// organisations before. With a new number the same name would mean another account.
var ErrOrganisations = errors.New("importer: imported with another number of organisations before")

// nonceStreams is the number of nonce streams that an organisation's lines take turns in, if there
// are several organisations. More lines may then be under way than one stream remembers. The number
// is part of every transaction and never changes.
const nonceStreams = 32

// organisation is one of the organisations that the accounts are spread over.
type organisation struct {
	name ledger.OrganisationName
	home ledger.ShardID
	// lines and openings are the first nonce streams of its lines and of its openings.
	lines, openings uint64
}

// organisationNames returns the names of count organisations. A single one has the name itself.
func organisationNames(name ledger.OrganisationName, count int) ([]ledger.OrganisationName, error) {
	if count < 1 || count > MaxOrganisations {
		return nil, fmt.Errorf("importer: %d organisations: 1 to %d are allowed", count,
			MaxOrganisations)
	}
	if count == 1 {
		return []ledger.OrganisationName{name}, name.Validate()
	}
	names := make([]ledger.OrganisationName, count)
	for i := range names {
		names[i] = numbered(name, i)
		if err := names[i].Validate(); err != nil {
			return nil, err
		}
	}
	return names, nil
}

func numbered(name ledger.OrganisationName, i int) ledger.OrganisationName {
	return ledger.OrganisationName(fmt.Sprintf("%s-%d", name, i))
}

// placeOf returns the index, among count organisations, of the one that owns the account of a name.
// It is part of every transaction and never changes.
func placeOf(name string, count int) int {
	if count == 1 {
		return 0
	}
	sum := sha256.Sum256([]byte("ledgerd/import/account/1\x00" + name))
	return int(binary.BigEndian.Uint64(sum[:]) % uint64(count))
}

// streamOf returns the nonce stream of an import.
func streamOf(organisation ledger.OrganisationName, first []byte) uint64 {
	return streamFor("ledgerd/import/1\x00", organisation, first)
}

func streamFor(domain string, organisation ledger.OrganisationName, first []byte) uint64 {
	hasher := sha256.New()
	fmt.Fprintf(hasher, "%s%s\x00", domain, organisation)
	hasher.Write(first)
	return binary.BigEndian.Uint64(hasher.Sum(nil))
}

// organise registers the organisations that are not known, and sets the home of each.
func (r *run) organise(ctx context.Context, first []byte) error {
	names, err := organisationNames(r.options.Key.Organisation, r.options.Organisations)
	if err != nil {
		return err
	}
	known := make([]bool, len(names))
	r.builder.organisations = make([]organisation, len(names))
	for i, name := range names {
		r.builder.organisations[i] = organisation{name: name, lines: streamOf(name, first),
			openings: streamFor("ledgerd/import/openings/1\x00", name, first)}
		its, found, err := r.known(ctx, name)
		if err != nil {
			return err
		}
		if known[i] = found; found {
			r.builder.organisations[i].home = ledger.ShardID(its.GetShard())
		}
	}
	if err := r.checkCount(ctx, first, known); err != nil {
		return err
	}
	return r.register(ctx, known)
}

// known returns an organisation and whether it is registered. It must have the importer's key.
func (r *run) known(ctx context.Context, name ledger.OrganisationName) (*ledgerdv1.Organisation,
	bool, error) {
	its, err := r.nodes.Organisation(ctx, name)
	if client.CodeOf(err) == connect.CodeNotFound {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if !r.hasKey(its) {
		return nil, false, fmt.Errorf("importer: organisation %s is registered with other keys "+
			"than the one in the keyring: use its own, or another organisation", name)
	}
	return its, true, nil
}

func (r *run) hasKey(its *ledgerdv1.Organisation) bool {
	public := r.options.Key.Public()
	for _, each := range its.GetPublicKeys() {
		if bytes.Equal(each, public[:]) {
			return true
		}
	}
	return false
}

// checkCount refuses to spread accounts over another number of organisations than before.
// Organisation 0 is registered after all others, so it shows how many there are.
func (r *run) checkCount(ctx context.Context, first []byte, known []bool) error {
	name, count := r.options.Key.Organisation, len(known)
	other := func(name ledger.OrganisationName) (bool, error) {
		if name.Validate() != nil {
			return false, nil
		}
		its, err := r.nodes.Organisation(ctx, name)
		if client.CodeOf(err) == connect.CodeNotFound {
			return false, nil
		}
		return err == nil && r.hasKey(its), err
	}
	refuse := func(how string) error {
		return fmt.Errorf("%w: the accounts of %s were spread over %s, and now over %d: use the "+
			"earlier number, or another organisation", ErrOrganisations, name, how, count)
	}
	if count == 1 {
		if found, err := other(numbered(name, 0)); err != nil || !found {
			return err
		}
		return refuse("several")
	}
	if more, err := other(numbered(name, count)); err != nil {
		return err
	} else if more {
		return refuse(fmt.Sprintf("more than %d", count))
	}
	for i := range known {
		if known[0] && !known[i] {
			return refuse(fmt.Sprintf("%d", i))
		}
	}
	one, err := other(name)
	if err != nil || !one {
		return err
	}
	used, err := r.nodes.NextSequence(ctx, name, streamOf(name, first))
	if err == nil && used > 1 {
		return refuse("one")
	}
	return err
}

// register registers the unknown organisations, each alone in its transaction and the last one
// first (see checkCount). In a book of several shards their homes are the shards in turn.
func (r *run) register(ctx context.Context, known []bool) error {
	key, shards := r.options.Key, 1
	if r.tree != nil {
		shards = r.tree.Shards()
	}
	var transactions []ledger.Transaction
	var keys []client.Key
	for i := len(known) - 1; i >= 0; i-- {
		if known[i] {
			continue
		}
		its := &r.builder.organisations[i]
		registration := ledger.Registration{Name: its.name, Keys: []ledger.PublicKey{key.Public()}}
		if r.tree != nil && len(known) > 1 {
			registration.Pinned, registration.Shard = true, ledger.ShardID(i%shards)
			its.home = registration.Shard
		} else if r.tree != nil {
			its.home = r.tree.Rendezvous(its.name)
		}
		transactions = append(transactions, ledger.Transaction{
			Ledger: r.builder.book, Signer: its.name, Nonce: ledger.Nonce{Stream: its.lines},
			Registrations: []ledger.Registration{registration},
		})
		keys = append(keys, client.Key{Organisation: its.name, Signer: key.Signer})
	}
	if len(transactions) == 0 {
		return nil
	}
	what := fmt.Sprintf("organisation %s", transactions[0].Signer)
	if len(transactions) > 1 {
		what = fmt.Sprintf("organisations %s to %s", transactions[len(transactions)-1].Signer,
			transactions[0].Signer)
	}
	bundle, err := client.Sign(ctx, keys, transactions...)
	if err != nil {
		return err
	}
	statuses, err := r.nodes.Submit(ctx, bundle, ledgerdv1.Level_LEVEL_DURABLE)
	if err != nil {
		return fmt.Errorf("importer: registering %s: %w", what, err)
	}
	for i, status := range statuses {
		if reason := status.GetReason(); reason != "" {
			return fmt.Errorf("importer: registering organisation %s: %s", transactions[i].Signer,
				reason)
		}
	}
	r.registeredAt = time.Now()
	return r.awaitRegistered(ctx, transactions)
}

// awaitRegistered waits until all shards know the organisations. The registrations come down the
// tree one by one, in the order in which they entered it.
func (r *run) awaitRegistered(ctx context.Context, transactions []ledger.Transaction) error {
	if r.tree == nil {
		return nil
	}
	last := transactions[len(transactions)-1].Signer
	for shard := range ledger.ShardID(r.tree.Shards()) {
		for {
			_, err := r.shard(shard).loose.Organisation(ctx, last)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if !r.patient() {
				return fmt.Errorf("%w: shard %d does not know organisation %s: %w", ErrNoProgress,
					shard, last, err)
			}
			r.shard(shard).loose.Rotate()
			if err := sleep(ctx, 20*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}
