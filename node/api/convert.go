package api

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// Bounds of a transaction's summary.
const (
	summaryPostings      = 8
	summaryNoteBytes     = 200
	summaryOrganisations = 16 // further ones
)

// reasonCodes are the words of the results. They never change.
var reasonCodes = [...]string{
	ledger.Applied:             "",
	ledger.WrongLedger:         "wrong_ledger",
	ledger.Expired:             "expired",
	ledger.UnknownOrganisation: "unknown_organisation",
	ledger.Unauthorised:        "unauthorised",
	ledger.StaleNonce:          "stale_nonce",
	ledger.Unbalanced:          "unbalanced",
	ledger.Overflow:            "overflow",
	ledger.UnknownAccount:      "unknown_account",
	ledger.InsufficientFunds:   "insufficient_funds",
	ledger.OrganisationExists:  "organisation_exists",
	ledger.AccountExists:       "account_exists",
	ledger.TooManyAssets:       "too_many_assets",
	ledger.MembershipChanging:  "membership_changing",
	ledger.MemberNameTaken:     "member_name_taken",
	ledger.MemberKeyTaken:      "member_key_taken",
	ledger.MemberAddressTaken:  "member_address_taken",
	ledger.UnknownMember:       "unknown_member",
	ledger.LastMember:          "last_member",
	ledger.TooManyMembers:      "too_many_members",
	// In a book of several shards.
	ledger.SetAside:             "set_aside",
	ledger.Relayed:              "relayed",
	ledger.Settled:              "settled",
	ledger.Released:             "released",
	ledger.OpeningAcrossShards:  "opening_across_shards",
	ledger.RegistrationNotAlone: "registration_not_alone",
	ledger.UnknownShard:         "unknown_shard",
	ledger.TooManyWaiting:       "too_many_waiting",
	ledger.OutOfPlace:           "out_of_place",
	// Of the disk map.
	ledger.MemberDiskTaken: "member_disk_taken",
	ledger.TooManyDisks:    "too_many_disks",
	// Of organisations' policies.
	ledger.TooFewSignatures: "too_few_signatures",
	ledger.PolicyOutdated:   "policy_outdated",
	ledger.AssetRefused:     "asset_refused",
	ledger.CharterOutdated:  "charter_outdated",
	// Of quotas.
	ledger.StreamQuota:  "stream_quota",
	ledger.AccountQuota: "account_quota",
	ledger.AssetQuota:   "asset_quota",
	ledger.RecordQuota:  "record_quota",
	ledger.PendingQuota: "pending_quota",
	// Of deadlines.
	ledger.DeadlinePassed:  "deadline_passed",
	ledger.DeadlineMissing: "deadline_missing",
	ledger.DeadlineTooFar:  "deadline_too_far",
	// Of cancellations.
	ledger.Cancelled:        "cancelled",
	ledger.CancelledTooLate: "cancelled_too_late",
	ledger.TooManyCancelled: "too_many_cancelled",

	ledger.BookOutdated: "book_outdated", ledger.TooManyShards: "too_many_shards",
	ledger.ShardLost: "shard_lost", ledger.OrganisationMoving: "organisation_moving",
	ledger.OrganisationHome: "organisation_home", ledger.ShardNeeded: "shard_needed",
	ledger.BadParent:      "bad_parent",
	ledger.HeardAgreement: "heard_agreement", ledger.HeardNothing: "heard_nothing",
	ledger.Departed: "departed",
	// Of the terms of accounts.
	ledger.AccountOutdated: "account_outdated", ledger.AccountFixed: "account_fixed",
	ledger.AccountNotEmpty: "account_not_empty", ledger.AliasTaken: "alias_taken",
	ledger.AccountFrozen: "account_frozen", ledger.AccountClosed: "account_closed",
	ledger.NoDebits: "no_debits", ledger.NoCredits: "no_credits", ledger.BelowFloor: "below_floor",
	ledger.AboveCeiling: "above_ceiling", ledger.VelocityExceeded: "velocity_exceeded",
	// Of details of entries.
	ledger.KeyTaken: "key_taken", ledger.TooManyKeys: "too_many_keys",
	ledger.UnknownRefundable: "unknown_refundable", ledger.RefundOver: "refund_over",
	ledger.RefundWaits: "refund_waits", ledger.RefundExceeded: "refund_exceeded",
	ledger.RefundTime: "refund_time", ledger.TooManyRefundable: "too_many_refundable",
	// Of assets.
	ledger.AssetTaken: "asset_taken", ledger.UnknownAsset: "unknown_asset",
	ledger.AssetOutdated: "asset_outdated", ledger.TermsFixed: "terms_fixed",
	ledger.TooManyRegistered: "too_many_registered", ledger.NotIssuer: "not_issuer",
	ledger.IssuanceClosed: "issuance_closed", ledger.SupplyExceeded: "supply_exceeded",
	// Of holds.
	ledger.UnknownHold: "unknown_hold", ledger.HoldOver: "hold_over",
	ledger.HoldEnding: "hold_ending", ledger.HoldDiffers: "hold_differs",
	ledger.HoldTime: "hold_time", ledger.TooManyHolds: "too_many_holds",
	// Of schedules.
	ledger.UnknownSchedule: "unknown_schedule", ledger.ScheduleTime: "schedule_time",
	ledger.SchedulePlaced: "schedule_placed", ledger.TooManySchedules: "too_many_schedules",
	// Of engines.
	ledger.TooManyEngines: "too_many_engines",
}

// ReasonCode returns the word for a result's code, "" for applied. The words never change.
func ReasonCode(code ledger.Code) string {
	if int(code) < len(reasonCodes) && (code == ledger.Applied || reasonCodes[code] != "") {
		return reasonCodes[code]
	}
	return fmt.Sprintf("code_%d", uint8(code)) // between them are numbers without a code
}

// decimalsFunc returns the decimals of an asset.
type decimalsFunc func(name ledger.AssetName) uint32

// reasonOf returns why a transaction failed, with the account if there is one, and the amount as
// people write it. The transaction may be nil.
func reasonOf(result ledger.Result, transaction *ledger.Transaction,
	decimals decimalsFunc) string {
	if result.OK() {
		return ""
	}
	text := result.String()
	if transaction == nil || result.Item == ledger.NoItem {
		return text
	}
	item := int(result.Item)
	switch result.Code {
	case ledger.InsufficientFunds, ledger.UnknownAccount, ledger.TooManyAssets, ledger.Overflow,
		ledger.AssetRefused, ledger.AssetQuota, ledger.NotIssuer, ledger.IssuanceClosed,
		ledger.SupplyExceeded, ledger.AccountFrozen, ledger.AccountClosed, ledger.NoDebits,
		ledger.NoCredits, ledger.BelowFloor, ledger.AboveCeiling, ledger.VelocityExceeded:
		if item < len(transaction.Postings) {
			posting := &transaction.Postings[item]
			return fmt.Sprintf("%s: %s %s for %s", text,
				posting.Amount.Decimal(int(decimals(posting.Asset))), posting.Asset,
				posting.Account)
		}
	case ledger.AccountExists, ledger.AccountQuota:
		if item < len(transaction.Openings) {
			return fmt.Sprintf("%s: %s", text, transaction.Openings[item].Account)
		}
	case ledger.RecordQuota:
		if item < len(transaction.Records) {
			return fmt.Sprintf("%s: %s", text, transaction.Records[item].Key)
		}
	case ledger.OrganisationExists:
		if item < len(transaction.Registrations) {
			return fmt.Sprintf("%s: %s", text, transaction.Registrations[item].Name)
		}
	}
	return text
}

// statusToProto converts a status. A transaction that is not nil makes the reason more specific.
func statusToProto(status report.Status, transaction *ledger.Transaction,
	decimals decimalsFunc) *ledgerdv1.TransactionStatus {
	shown := &ledgerdv1.TransactionStatus{Id: status.ID[:], IdHex: status.ID.String()}
	describe(shown, &status, transaction, decimals)
	return shown
}

// describe fills in what statusToProto shows, except for the id.
func describe(shown *ledgerdv1.TransactionStatus, status *report.Status,
	transaction *ledger.Transaction, decimals decimalsFunc) {
	shown.WaitsFor = shardNumbers(status.Waits)
	shown.Destinations = shardNumbers(status.Destinations)
	switch status.Outcome {
	case report.OutcomePending:
		shown.State = ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING
	case report.OutcomeWaiting, report.OutcomeRelayed:
		shown.State = ledgerdv1.TransactionState_TRANSACTION_STATE_PENDING
		shown.ReasonCode = ReasonCode(ledger.SetAside)
		if status.Outcome == report.OutcomeRelayed {
			shown.ReasonCode = ReasonCode(ledger.Relayed)
		}
	case report.OutcomeExecuted:
		shown.State = stateOfLevel(status.Level)
	case report.OutcomeFailed:
		shown.State = ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED
		shown.ReasonCode = ReasonCode(status.Result.Code)
		shown.Reason = reasonOf(status.Result, transaction, decimals)
	case report.OutcomeExpired:
		shown.State = ledgerdv1.TransactionState_TRANSACTION_STATE_EXPIRED
		shown.ReasonCode = "expired"
		shown.Reason = "its last valid block passed before it was ordered: sign it again with a " +
			"later one"
	}
	if status.InBlock() {
		shown.Height = uint64(status.Height)
		shown.Index = status.Index
		shown.SettledHeight = uint64(status.Settled)
	}
}

func stateOfLevel(level report.Level) ledgerdv1.TransactionState {
	switch level {
	case report.LevelStored:
		return ledgerdv1.TransactionState_TRANSACTION_STATE_STORED
	case report.LevelDurable:
		return ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE
	}
	return ledgerdv1.TransactionState_TRANSACTION_STATE_ORDERED
}

// wantedLevel reads a request's level. Unspecified means durable.
func wantedLevel(level ledgerdv1.Level) (report.Level, error) {
	if level == ledgerdv1.Level_LEVEL_UNSPECIFIED {
		return report.LevelDurable, nil
	}
	if level < 0 || level > ledgerdv1.Level_LEVEL_DURABLE_EVERYWHERE {
		return 0, invalid("level %d: use LEVEL_ADMITTED, LEVEL_ORDERED, LEVEL_STORED, "+
			"LEVEL_DURABLE or LEVEL_DURABLE_EVERYWHERE", level)
	}
	return report.Level(level), nil
}

func postingsToProto(postings []ledger.Posting) []*ledgerdv1.Posting {
	shown := make([]*ledgerdv1.Posting, len(postings))
	for i := range postings {
		shown[i] = &ledgerdv1.Posting{
			Account: string(postings[i].Account),
			Amount:  postings[i].Amount.String(),
			Asset:   string(postings[i].Asset),
		}
	}
	return shown
}

func postingsFromProto(all []*ledgerdv1.Posting) (postings []ledger.Posting, err error) {
	for i, posting := range all {
		amount, err := ledger.ParseAmount(posting.GetAmount())
		if err != nil {
			return nil, fmt.Errorf("posting %d: %w", i+1, err)
		}
		asset := ledger.AssetName(posting.GetAsset())
		if asset == "" {
			asset = ledger.DefaultAsset
		}
		postings = append(postings, ledger.Posting{
			Account: ledger.AccountPath(posting.GetAccount()), Asset: asset, Amount: amount})
	}
	return postings, nil
}

func noteToProto(note []byte) string { return strings.ToValidUTF8(string(note), "\uFFFD") }

func bodyToProto(t *ledger.Transaction) *ledgerdv1.TransactionBody {
	body := &ledgerdv1.TransactionBody{
		Postings:  postingsToProto(t.Postings),
		Note:      noteToProto(t.Note),
		Signer:    string(t.Signer),
		Nonce:     &ledgerdv1.Nonce{Stream: t.Nonce.Stream, Sequence: t.Nonce.Sequence},
		LastValid: uint64(t.LastValid),
		Deadline:  uint64(t.Deadline),

		MembershipChange: changeToProto(t.Change), Policy: changeOfPolicyToProto(t.Policy),
		Charter: changeOfCharterToProto(t.Charter), Book: bookChangeToProto(t.Book),
		Asset: assetChangeToProto(t.Asset), AccountChange: accountChangeToProto(t.Account),
		Hold: holdToProto(t.Hold), HoldEnd: holdEndToProto(t.HoldEnd),
		Details:  detailsToProto(t.Details),
		Schedule: scheduleToProto(t.Schedule), ScheduleEnd: scheduleEndToProto(t.ScheduleEnd),
		Occurrence: occurrenceToProto(t.Occurrence),
	}
	if c := t.Cancellation; c != nil {
		body.Cancellation = &ledgerdv1.Cancellation{TransactionHex: c.Transaction.String(),
			Shard: uint32(c.Shard)}
	}
	for i := range t.Registrations {
		registration := &t.Registrations[i]
		body.Organisations = append(body.Organisations, &ledgerdv1.OrganisationRegistration{
			Name:       string(registration.Name),
			PublicKeys: keysToProto(registration.Keys),
			Shard:      uint32(registration.Shard),
			Pinned:     registration.Pinned,
		})
	}
	for i := range t.Openings {
		opening := &t.Openings[i]
		body.Accounts = append(body.Accounts, &ledgerdv1.AccountOpening{
			Account: string(opening.Account), Issuer: opening.Issuer, Alias: opening.Alias,
		})
	}
	for i := range t.Records {
		body.Records = append(body.Records, &ledgerdv1.Record{Key: string(t.Records[i].Key),
			Value: t.Records[i].Value})
	}
	return body
}

func keysToProto(keys []ledger.PublicKey) [][]byte {
	shown := make([][]byte, len(keys))
	for i := range keys {
		shown[i] = keys[i][:]
	}
	return shown
}

// BodyFromProto reads a transaction's parts, for the ledger with this genesis hash. It checks form
// and bounds.
func BodyFromProto(body *ledgerdv1.TransactionBody, genesis ledger.Hash) (ledger.Transaction,
	error) {
	t := ledger.Transaction{
		Ledger: genesis,
		Signer: ledger.OrganisationName(body.GetSigner()),
		Nonce: ledger.Nonce{Stream: body.GetNonce().GetStream(),
			Sequence: body.GetNonce().GetSequence()},
		LastValid: ledger.Height(body.GetLastValid()),
		Deadline:  ledger.Milliseconds(body.GetDeadline()),
		Note:      []byte(body.GetNote()),
	}
	for i, registration := range body.GetOrganisations() {
		entry := ledger.Registration{
			Name:   ledger.OrganisationName(registration.GetName()),
			Shard:  ledger.ShardID(registration.GetShard()),
			Pinned: registration.GetPinned() || registration.GetShard() != 0,
		}
		for _, key := range registration.GetPublicKeys() {
			var public ledger.PublicKey
			if len(key) != len(public) {
				return t, fmt.Errorf("organisation %d: a public key has %d bytes, ed25519 keys "+
					"have 32", i+1, len(key))
			}
			copy(public[:], key)
			entry.Keys = append(entry.Keys, public)
		}
		t.Registrations = append(t.Registrations, entry)
	}
	for _, opening := range body.GetAccounts() {
		t.Openings = append(t.Openings, ledger.Opening{
			Account: ledger.AccountPath(opening.GetAccount()), Issuer: opening.GetIssuer(),
			Alias: opening.GetAlias(),
		})
	}
	var err error
	if t.Postings, err = postingsFromProto(body.GetPostings()); err != nil {
		return t, err
	}
	for _, record := range body.GetRecords() {
		t.Records = append(t.Records, ledger.Record{Key: ledger.RecordKey(record.GetKey()),
			Value: record.GetValue()})
	}
	if t.Change, err = changeFromProto(body.GetMembershipChange()); err != nil {
		return t, err
	}
	if t.Charter, err = changeOfCharterFromProto(body.GetCharter()); err != nil {
		return t, err
	}
	if t.Book, err = bookChangeFromProto(body.GetBook()); err != nil {
		return t, err
	}
	if t.Asset, err = assetChangeFromProto(body.GetAsset()); err != nil {
		return t, err
	}
	if t.Hold, err = HoldFromProto(body.GetHold()); err != nil {
		return t, err
	}
	if t.HoldEnd, err = holdEndFromProto(body.GetHoldEnd()); err != nil {
		return t, err
	}
	if t.Details, err = detailsFromProto(body.GetDetails()); err != nil {
		return t, err
	}
	if t.Schedule, err = ScheduleFromProto(body.GetSchedule()); err != nil {
		return t, err
	}
	if t.ScheduleEnd, err = scheduleEndFromProto(body.GetScheduleEnd()); err != nil {
		return t, err
	}
	if body.GetOccurrence() != nil {
		return t, errors.New("the blocks make the occurrences of schedules: it cannot be submitted")
	}
	if t.Account, err = accountChangeFromProto(body.GetAccountChange()); err != nil {
		return t, err
	}
	if t.Policy, err = changeOfPolicyFromProto(body.GetPolicy()); err != nil {
		return t, err
	}
	if c := body.GetCancellation(); c != nil {
		id, err := ledger.ParseHash(c.GetTransactionHex())
		if err != nil {
			return t, fmt.Errorf("the transaction that it cancels: %w", err)
		}
		t.Cancellation = &ledger.Cancellation{Transaction: id, Shard: ledger.ShardID(c.GetShard())}
	}
	return t, t.Validate()
}

func signaturesToProto(signatures []ledger.Signature) []*ledgerdv1.Signature {
	shown := make([]*ledgerdv1.Signature, len(signatures))
	for i := range signatures {
		shown[i] = &ledgerdv1.Signature{
			Organisation: string(signatures[i].Organisation), PublicKey: signatures[i].Key[:],
			Signature: signatures[i].Bytes[:],
		}
	}
	return shown
}

// BundleFromProto reads a bundle. It checks form and bounds, not signatures.
func BundleFromProto(message *ledgerdv1.Bundle) (*ledger.Bundle, error) {
	signatures := make([]ledger.Signature, len(message.GetSignatures()))
	for i, signature := range message.GetSignatures() {
		read := &signatures[i]
		if len(signature.GetPublicKey()) != len(read.Key) ||
			len(signature.GetSignature()) != len(read.Bytes) {
			return nil, fmt.Errorf("%w: signature %d: an ed25519 key has 32 bytes and a "+
				"signature 64", ledger.ErrMalformed, i)
		}
		read.Organisation = ledger.OrganisationName(signature.GetOrganisation())
		copy(read.Key[:], signature.GetPublicKey())
		copy(read.Bytes[:], signature.GetSignature())
	}
	if len(message.GetPacked()) == 0 {
		return ledger.AssembleBundle(message.GetTransactions(), signatures)
	}
	if len(message.GetTransactions()) > 0 {
		return nil, fmt.Errorf("%w: a bundle has either transactions or a packed form",
			ledger.ErrMalformed)
	}
	return ledger.AssemblePackedBundle(message.GetPacked(), signatures)
}

// BundleToProto returns a bundle in the form for submission. The message shares the bundle's
// memory.
func BundleToProto(bundle *ledger.Bundle) *ledgerdv1.Bundle {
	message := &ledgerdv1.Bundle{Signatures: signaturesToProto(bundle.Signatures()),
		Packed: bundle.Content()}
	if bundle.Packed() {
		return message
	}
	message.Transactions = make([][]byte, 0, bundle.Len())
	for i := range bundle.Len() {
		message.Transactions = append(message.Transactions, bundle.Body(i))
	}
	return message
}

// shorten cuts a text to at most the given number of bytes, between characters.
func shorten(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	for bytes > 0 && !utf8.RuneStart(text[bytes]) {
		bytes--
	}
	return text[:bytes]
}

func (s *Service) summaryOf(entry *ledger.Entry,
	status report.Status) *ledgerdv1.TransactionSummary {
	t := entry.Transaction()
	shown := &ledgerdv1.TransactionSummary{
		Status:       statusToProto(status, t, s.decimalsOf),
		Signer:       string(t.Signer),
		Postings:     postingsToProto(t.Postings[:min(len(t.Postings), summaryPostings)]),
		PostingCount: uint32(len(t.Postings)),
		RecordCount:  uint32(len(t.Records)),
		Note:         shorten(noteToProto(t.Note), summaryNoteBytes),

		MembershipChange:  changeToProto(t.Change),
		OrganisationCount: uint32(len(t.Registrations)),
		AccountCount:      uint32(len(t.Openings)),
		Policy:            t.Policy != nil,
		Charter:           t.Charter != nil,
		Book:              bookChangeToProto(t.Book),
		Asset:             assetChangeToProto(t.Asset),
		Hold:              holdToProto(t.Hold),
		HoldEnd:           holdEndToProto(t.HoldEnd),
		Schedule:          scheduleToProto(t.Schedule),
		ScheduleEnd:       scheduleEndToProto(t.ScheduleEnd),
		Occurrence:        occurrenceToProto(t.Occurrence),
		AccountChange:     accountChangeToProto(t.Account),
		Details:           detailsToProto(t.Details),
	}
	further := furtherOrganisations(t, len(shown.Postings))
	shown.FurtherOrganisationCount = uint32(len(further))
	shown.FurtherOrganisations = further[:min(len(further), summaryOrganisations)]
	if verdict := t.Verdict; verdict != nil {
		shown.VerdictTransactionHex, shown.VerdictShard, shown.Verdict = verdict.ID.String(),
			uint32(verdict.Shard), verdictWord(verdict)
	}
	if t.Arrival != nil {
		shown.ArrivalOf = t.Arrival.Move
	}
	if c := t.Cancellation; c != nil {
		shown.CancelsHex, shown.CancelsAt = c.Transaction.String(), uint32(c.Shard)
	}
	return shown
}

// furtherOrganisations returns the organisations that a transaction concerns besides its signer and
// those of its first postings, ascending.
func furtherOrganisations(t *ledger.Transaction, postings int) (names []string) {
	known := func(name string) bool {
		return name == string(t.Signer) || slices.ContainsFunc(t.Postings[:postings],
			func(posting ledger.Posting) bool {
				return string(posting.Account.Organisation()) == name
			})
	}
	for i := range t.Openings {
		names = append(names, string(t.Openings[i].Account.Organisation()))
	}
	for i := postings; i < len(t.Postings); i++ {
		names = append(names, string(t.Postings[i].Account.Organisation()))
	}
	for i := range t.Records {
		names = append(names, string(t.Records[i].Key.Organisation()))
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), known)
}

// verdictWord returns "good", or the code of the reason.
func verdictWord(verdict *ledger.Verdict) string {
	if verdict.Good() {
		return "good"
	}
	return ReasonCode(verdict.Result.Code)
}

func milliseconds(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(max(0, t.UnixMilli()))
}

// HashFrom reads a hash given as 32 bytes or as 64 hex digits.
func HashFrom(raw []byte, hex string, what string) (ledger.Hash, error) {
	var hash ledger.Hash
	switch {
	case len(raw) == len(hash) && hex == "":
		copy(hash[:], raw)
		return hash, nil
	case len(raw) == 0 && hex != "":
		hash, err := ledger.ParseHash(hex)
		if err != nil {
			return hash, invalid("%s: %w", what, err)
		}
		return hash, nil
	case len(raw) > 0 && hex != "":
		return hash, invalid("%s: give 32 bytes or 64 hex digits, not both", what)
	}
	return hash, invalid("%s: %d bytes: give 32 bytes, or 64 hex digits in the hex field",
		what, len(raw))
}
