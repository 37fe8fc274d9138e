package ledger

import (
	"errors"
	"fmt"
	"slices"
)

// ErrSignature reports that a signature is wrong.
var ErrSignature = errors.New("ledger: wrong signature")

// ErrUnauthorised reports that a required signature is missing, or was made with a key that does
// not belong to its organisation.
var ErrUnauthorised = errors.New("ledger: unauthorised")

// ErrUnknownOrganisation reports that an organisation is not registered.
var ErrUnknownOrganisation = errors.New("ledger: unknown organisation")

// ErrWrongLedger reports that a transaction was signed for another ledger.
var ErrWrongLedger = errors.New("ledger: transaction for another ledger")

// Organisation is a registered organisation.
type Organisation struct {
	Name OrganisationName `json:"name"`
	// Keys are those of the registration, or of the present policy.
	Keys   []PublicKey `json:"keys"`
	Shard  ShardID     `json:"shard,omitempty"`
	Pinned bool        `json:"pinned,omitempty"`
	// Registered is the height of the block that registered the organisation.
	Registered Height `json:"registered"`
	// Policy is nil until the organisation's policy changes for the first time.
	Policy *Policy `json:"policy,omitempty"`
}

// HasKey reports whether the key may sign for the organisation.
func (o *Organisation) HasKey(key PublicKey) bool { return containsKey(o.Keys, key) }

func containsKey(keys []PublicKey, key PublicKey) bool {
	for i := range keys {
		if keys[i] == key {
			return true
		}
	}
	return false
}

// Directory is a set of registered organisations. *state.State and *store.Store implement it.
type Directory interface {
	// Organisation returns a registered organisation, read-only.
	Organisation(name OrganisationName) (Organisation, bool)
}

// Authority is the source of the keys that may sign: those of the registered organisations, and
// those of the members, which may admit disks. *state.State and *store.Store implement it.
type Authority interface {
	Directory
	// Membership returns the present membership. The caller owns the copy.
	Membership() Membership
	// Charter returns the present charter. The caller owns the copy.
	Charter() Charter
	// BookShards returns the number of shards that the book has at present.
	BookShards() int
}

// VerifyBundle returns nil if a bundle may be proposed: every transaction is valid (Validate) and
// for this ledger, every organisation that must sign has signed, each key is known to the authority
// or from a registration in this bundle, and all signatures are good. Otherwise the error names the
// transaction and the reason: ErrInvalidTransaction, ErrWrongLedger, ErrUnauthorised,
// ErrUnknownOrganisation or ErrSignature. The ledger is genesis.Book(), which the caller computes
// once.
func VerifyBundle(bundle *Bundle, genesis *Genesis, ledger Hash, authority Authority) error {
	if err := CheckBundle(bundle, genesis, ledger, authority); err != nil {
		return err
	}
	return verifier.Bundles([]*Bundle{bundle})[0]
}

// VerifyBundles verifies many bundles at once, each as VerifyBundle does. Verifying the signatures
// in one batch takes half the time. The result has one error or nil for each bundle.
func VerifyBundles(bundles []*Bundle, genesis *Genesis, ledger Hash, authority Authority) []error {
	failures := make([]error, len(bundles))
	checked, places := make([]*Bundle, 0, len(bundles)), make([]int, 0, len(bundles))
	for i, bundle := range bundles {
		if failures[i] = CheckBundle(bundle, genesis, ledger, authority); failures[i] == nil {
			checked, places = append(checked, bundle), append(places, i)
		}
	}
	for i, err := range verifier.Bundles(checked) {
		failures[places[i]] = err
	}
	return failures
}

func signatureError(signature *Signature) error {
	if signature.Organisation == Operator {
		return fmt.Errorf("%w: of the operator's or member's key %s", ErrSignature, signature.Key)
	}
	return fmt.Errorf("%w: of organisation %s, key %s", ErrSignature, signature.Organisation,
		signature.Key)
}

// CheckBundle does the checks of VerifyBundle except verifying the signatures.
func CheckBundle(bundle *Bundle, genesis *Genesis, ledger Hash, authority Authority) error {
	if bundle.Packed() {
		if charter := authority.Charter(); !TakesPacked(charter.Version, genesis) {
			return fmt.Errorf("%w: this chain takes no packed bundles: send the transactions as "+
				"they are", ErrInvalidTransaction)
		}
	}
	if err := checkVersions(bundle, authority.Charter().Version); err != nil {
		return err
	}
	for i := range bundle.signatures {
		if err := checkSigner(bundle, &bundle.signatures[i], genesis, authority); err != nil {
			return err
		}
	}
	policies := policiesOf(bundle, authority)
	if bundle.packed != nil && len(policies) == 0 && bundle.isConsented(ledger) {
		return nil
	}
	return bundle.each(func(i int, transaction *Transaction) error {
		named := ledger
		if transaction.Change != nil && genesis.Sharded() {
			named = genesis.Hash()
		}
		if transaction.Ledger != named {
			return fmt.Errorf("transaction %d: %w: %s, this is %s", i, ErrWrongLedger,
				transaction.Ledger, named)
		}
		// Every way to make a bundle has checked the form.
		if err := transaction.checkRules(); err != nil {
			return fmt.Errorf("transaction %d: %w", i, err)
		}
		if err := checkRegistrations(transaction, genesis, authority.BookShards()); err != nil {
			return fmt.Errorf("transaction %d: %w: %w", i, ErrInvalidTransaction, err)
		}
		if c := transaction.Cancellation; c != nil &&
			int64(c.Shard) >= int64(authority.BookShards()) {
			return fmt.Errorf("transaction %d: %w: %s: %d", i, ErrInvalidTransaction, UnknownShard,
				c.Shard)
		}
		if err := checkConsent(bundle, transaction, policies, authority); err != nil {
			return fmt.Errorf("transaction %d: %w", i, err)
		}
		return nil
	})
}

// checkVersions checks that a chain of a version takes the bundle's transactions.
func checkVersions(bundle *Bundle, version int) error {
	needed := bundle.NeedsVersion()
	switch {
	case needed <= max(version, FirstVersion):
		return nil
	case needed == EnginesVersion:
		return fmt.Errorf("%w: this chain does not change its engine yet: let the operators run "+
			"`ledgerd cluster upgrade`", ErrInvalidTransaction)
	case TakesCancellations(version):
		return fmt.Errorf("%w: the shards of this book cannot change yet: let the operators run "+
			"`ledgerd cluster upgrade`", ErrInvalidTransaction)
	case TakesDeadlines(version):
		return fmt.Errorf("%w: this chain takes no cancellations yet: let the operators run "+
			"`ledgerd cluster upgrade`", ErrInvalidTransaction)
	}
	return fmt.Errorf("%w: this chain takes no deadlines yet: send the transactions without "+
		"them, or let the operators run `ledgerd cluster upgrade`", ErrInvalidTransaction)
}

// isConsented reports that each transfer of a packed bundle is for a ledger, and that the
// organisations that must sign it have signed, given that none of these has a policy. A transfer
// has nothing else that can be wrong. If it is false, the caller looks for the one that is wrong.
func (b *Bundle) isConsented(ledger Hash) bool {
	p, last := b.packed, OrganisationName("")
	signed := func(name OrganisationName) bool {
		if name != last { // most take from the same organisation
			if !b.signedBy(name) {
				return false
			}
			last = name
		}
		return true
	}
	if p.ledger != ledger || !signed(p.signer) {
		return false
	}
	for place := range p.count {
		if !signed(p.path(p.from(place)).Organisation()) {
			return false
		}
	}
	return true
}

// signedBy reports whether an organisation is among the signers.
func (b *Bundle) signedBy(name OrganisationName) bool {
	for i := range b.signatures {
		if b.signatures[i].Organisation == name {
			return true
		}
	}
	return false
}

// checkRegistrations checks the rules for registrations in books of several shards, of which the
// book has this number now.
func checkRegistrations(transaction *Transaction, genesis *Genesis, shards int) error {
	if !genesis.Sharded() || len(transaction.Registrations) == 0 {
		return nil
	}
	if transaction.LastValid != 0 || transaction.Deadline != 0 || len(transaction.Openings)+
		len(transaction.Postings)+len(transaction.Records) > 0 {
		return errors.New(RegistrationNotAlone.String())
	}
	for i := range transaction.Registrations {
		if registration := &transaction.Registrations[i]; registration.Pinned &&
			int64(registration.Shard) >= int64(shards) {
			return fmt.Errorf("%s: %d, the book has %d", UnknownShard, registration.Shard, shards)
		}
	}
	return nil
}

// checkSigner checks that a signature's key belongs to its organisation.
func checkSigner(bundle *Bundle, signature *Signature, genesis *Genesis,
	authority Authority) error {
	if signature.Organisation == Operator {
		return checkAdministrator(bundle, signature, authority)
	}
	organisation, known := authority.Organisation(signature.Organisation)
	if known && organisation.HasKey(signature.Key) {
		return nil
	}
	for i := range bundle.transactions {
		for j := range bundle.transactions[i].Registrations {
			registration := &bundle.transactions[i].Registrations[j]
			if registration.Name == signature.Organisation &&
				containsKey(registration.Keys, signature.Key) {
				return nil
			}
		}
	}
	if !known {
		return fmt.Errorf("%w: %s; register it first", ErrUnknownOrganisation,
			signature.Organisation)
	}
	return fmt.Errorf("%w: %s is no key of organisation %s", ErrUnauthorised, signature.Key,
		signature.Organisation)
}

// checkAdministrator checks the key of a signature without organisation. It must be an operator's.
// If the bundle admits a disk, it may also be that of a member that may admit it.
func checkAdministrator(bundle *Bundle, signature *Signature, authority Authority) error {
	if charter := authority.Charter(); charter.IsOperator(signature.Key) {
		return nil
	}
	change := bundle.Transaction(0).Change
	if change == nil || change.Kind != ChangeAdmit {
		return fmt.Errorf("%w: %s is no operator's key", ErrUnauthorised, signature.Key)
	}
	if membership := authority.Membership(); !membership.MayAdmit(signature.Key, change.Index) {
		return fmt.Errorf("%w: %s is no operator's key, and no key of a member that may admit a "+
			"disk for member %d", ErrUnauthorised, signature.Key, change.Index)
	}
	return nil
}

// checkConsent checks that every organisation that must sign the transaction is among the signers.
// The policies are those of policiesOf.
func checkConsent(bundle *Bundle, transaction *Transaction, policies []Organisation,
	authority Authority) error {
	if err := checkPolicies(bundle, transaction, policies); err != nil {
		return err
	}
	missing := func(name OrganisationName) error {
		if name == Operator {
			return fmt.Errorf("%w: an operator of the ledger has to sign", ErrUnauthorised)
		}
		return fmt.Errorf("%w: organisation %s has to sign", ErrUnauthorised, name)
	}
	signed := bundle.signedBy
	if !signed(transaction.Signer) {
		return missing(transaction.Signer)
	}
	if transaction.Signer == Operator {
		return checkOperators(bundle, transaction, authority)
	}
	for i := range transaction.Registrations {
		registration := &transaction.Registrations[i]
		if !HasSigned(bundle.signatures, registration.Name, registration.Keys) {
			return fmt.Errorf("%w: one of the keys of organisation %s has to sign", ErrUnauthorised,
				registration.Name)
		}
		if _, known := authority.Organisation(registration.Name); known {
			continue // a repetition, or refused when it is executed
		}
		if charter := authority.Charter(); charter.RegistrationByOperators &&
			!charter.Consents(bundle.signatures) {
			return fmt.Errorf("%w: %s has to sign the registration of %s (ledgerd org add %s "+
				"--operator KEYFILE)", ErrUnauthorised, charter.Signers(), registration.Name,
				registration.Name)
		}
	}
	if change := transaction.Asset; change != nil && change.Number == 1 {
		if charter := authority.Charter(); charter.RegistrationByOperators &&
			!charter.Consents(bundle.signatures) {
			return fmt.Errorf("%w: %s has to sign the registration of asset %s (ledgerd asset "+
				"register %s --operator KEYFILE)", ErrUnauthorised, charter.Signers(),
				change.Asset, change.Asset)
		}
	}
	for i := range transaction.Openings {
		if name := transaction.Openings[i].Account.Organisation(); !signed(name) {
			return missing(name)
		}
	}
	for i := range transaction.Postings {
		if posting := &transaction.Postings[i]; transaction.Takes(posting) &&
			!signed(posting.Account.Organisation()) {
			return missing(posting.Account.Organisation())
		}
	}
	for i := range transaction.Records {
		if name := transaction.Records[i].Key.Organisation(); !signed(name) {
			return missing(name)
		}
	}
	return nil
}

// checkOperators checks that as many operators have signed a transaction as have to. The admission
// of a disk may be a member's instead.
func checkOperators(bundle *Bundle, transaction *Transaction, authority Authority) error {
	if change := transaction.Charter; change != nil {
		if err := CheckVersion(change.Version); err != nil {
			return err
		}
	}
	charter := authority.Charter()
	if charter.Consents(bundle.signatures) {
		return nil
	}
	if change := transaction.Change; change != nil && change.Kind == ChangeAdmit {
		membership := authority.Membership()
		for i := range bundle.signatures {
			if membership.MayAdmit(bundle.signatures[i].Key, change.Index) {
				return nil
			}
		}
	}
	return fmt.Errorf("%w: %s of the ledger has to sign", ErrUnauthorised, charter.Signers())
}

// Signers names the operators that have to sign, for messages that go on with "has to sign".
func (c *Charter) Signers() string {
	if c.Threshold == 1 {
		return "an operator"
	}
	return fmt.Sprintf("a group of %d of the %d operators", c.Threshold, len(c.Operators))
}

// policiesOf returns the organisations with a policy that have signed the bundle, each once. The
// others are not registered yet, need only one signature, or are found missing later.
func policiesOf(bundle *Bundle, authority Authority) []Organisation {
	var found []Organisation
	for i := range bundle.signatures {
		name := bundle.signatures[i].Organisation
		if name == Operator || slices.ContainsFunc(bundle.signatures[:i], func(s Signature) bool {
			return s.Organisation == name
		}) {
			continue
		}
		organisation, known := authority.Organisation(name)
		if known && organisation.Policy != nil {
			found = append(found, organisation)
		}
	}
	return found
}

// checkPolicies checks that a transaction has the consent of those organisations with a policy that
// have to sign it.
func checkPolicies(bundle *Bundle, transaction *Transaction, policies []Organisation) error {
	for i := range policies {
		organisation := &policies[i]
		name := organisation.Name
		if !transaction.asks(name) {
			continue
		}
		switch organisation.Consents(transaction, bundle.signatures) {
		case Unauthorised:
			return fmt.Errorf("%w: no key of organisation %s that signed has the role for it "+
				"(ledgerd org policy %s)", ErrUnauthorised, name, name)
		case TooFewSignatures:
			_, needed := organisation.Policy.demands(name, transaction)
			return fmt.Errorf("%w: %d keys of organisation %s have to sign (ledgerd org policy %s)",
				ErrUnauthorised, needed, name, name)
		}
	}
	return nil
}

// asks reports whether an organisation has to sign the transaction.
func (t *Transaction) asks(name OrganisationName) bool {
	for each := range t.Consenting() {
		if each == name {
			return true
		}
	}
	return false
}

// HasSigned reports whether one of the signatures is the organisation's, with one of these keys. It
// does not verify the signature.
func HasSigned(signatures []Signature, name OrganisationName, keys []PublicKey) bool {
	for i := range signatures {
		if signatures[i].Organisation == name && containsKey(keys, signatures[i].Key) {
			return true
		}
	}
	return false
}
