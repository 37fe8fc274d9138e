package api

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/doors"
)

// access decides which caller may make which call, and what an organisation reads of the answer. It
// is an interceptor of the calls of clients. Calls of other shards' nodes do not pass through it:
// the node that a client asked has decided.
type access struct{}

var _ connect.Interceptor = access{}

// rule decides about one method. Operators may make every call. Auditors may make every call but
// those that write.
type rule struct {
	writes bool
	// asks decides about an organisation's request, and answers about the answer, which it may
	// shorten. If both are nil, an organisation may make the call if shared is set.
	asks    func(organisation string, request any) error
	answers func(organisation string, answer any) error
	// conceals: if a call fails whose answer decides, an organisation learns why only if this says
	// nothing against it. Otherwise it would learn what others have by what is not found.
	conceals func(organisation string, request any) error
	// shared: the answer is about the ledger as a whole, and no organisation's own.
	shared bool
	// each: the call is a stream of requests, and its handler decides about each of them.
	each bool
}

// errOthers is the reason for which an organisation does not get something.
var errOthers = errors.New("an organisation reads its own accounts, records and transactions only")

// rules has a rule for every method. A method without one is for operators only.
var rules = map[string]rule{
	"Submit": {writes: true, asks: func(organisation string, request any) error {
		return signs(organisation, request.(*ledgerdv1.SubmitRequest).GetBundle())
	}},
	"SubmitMany": {writes: true, asks: func(organisation string, request any) error {
		for _, bundle := range request.(*ledgerdv1.SubmitManyRequest).GetBundles() {
			if err := signs(organisation, bundle); err != nil {
				return err
			}
		}
		return nil
	}},
	"SubmitStream": {writes: true, each: true},
	"DryRun": {asks: func(organisation string, request any) error {
		return signs(organisation, request.(*ledgerdv1.DryRunRequest).GetBundle())
	}, answers: func(organisation string, answer any) error {
		for _, outcome := range answer.(*ledgerdv1.DryRunResponse).GetTransactions() {
			readableOutcome(organisation, outcome)
		}
		return nil
	}},
	"Prepare": {shared: true}, // it encodes what the caller sent
	"GetTransaction": {answers: func(organisation string, answer any) error {
		return concerns(organisation, answer.(*ledgerdv1.GetTransactionResponse).GetTransaction())
	}},
	"WaitTransaction": {answers: func(organisation string, answer any) error {
		return concerns(organisation, answer.(*ledgerdv1.GetTransactionResponse).GetTransaction())
	}},
	"ListTransactions": {asks: func(organisation string, request any) error {
		if request.(*ledgerdv1.ListTransactionsRequest).GetOrganisation() != organisation {
			return fmt.Errorf("%w: ask for those of %s", errOthers, organisation)
		}
		return nil
	}},
	// Statuses by id: only those that have a transaction know its id.
	"WaitTransactions": {shared: true},
	"GetBlock": {answers: func(organisation string, answer any) error {
		block := answer.(*ledgerdv1.GetBlockResponse).GetBlock()
		if block != nil {
			block.Transactions = slices.DeleteFunc(block.Transactions,
				func(summary *ledgerdv1.TransactionSummary) bool {
					return !summaryConcerns(organisation, summary)
				})
		}
		return nil
	}},
	"ListBlocks": {shared: true}, // headers
	"ReadChain":  {},             // everything of all organisations
	// A guardian reads the terms, to see its freeze and the number of its next change; not the
	// balances.
	"GetAccount": {answers: func(organisation string, answer any) error {
		account := answer.(*ledgerdv1.GetAccountResponse).GetAccount()
		others := owns(organisation, account.GetAccount())
		if others != nil && account.GetTerms().GetGuardian() == organisation {
			account.Balances = nil
			return nil
		}
		return others
	}, conceals: func(organisation string, request any) error {
		asked := request.(*ledgerdv1.GetAccountRequest)
		if asked.GetAccount() == "" && asked.GetOrganisation() == organisation {
			return nil
		}
		return owns(organisation, asked.GetAccount())
	}},
	"ListAccounts": {asks: func(organisation string, request any) error {
		if owns(organisation, request.(*ledgerdv1.ListAccountsRequest).GetPrefix()) != nil {
			return fmt.Errorf("%w: ask with the prefix %q", errOthers, organisation+":")
		}
		return nil
	}},
	"GetAccountProof": {asks: func(organisation string, request any) error {
		return owns(organisation, request.(*ledgerdv1.GetAccountProofRequest).GetAccount())
	}},
	"ListHistory": {asks: func(organisation string, request any) error {
		return owns(organisation, request.(*ledgerdv1.ListHistoryRequest).GetAccount())
	}},
	"GetRecord": {asks: func(organisation string, request any) error {
		return owns(organisation, request.(*ledgerdv1.GetRecordRequest).GetKey())
	}},
	"ListRecords": {asks: func(organisation string, request any) error {
		if owns(organisation, request.(*ledgerdv1.ListRecordsRequest).GetPrefix()) != nil {
			return fmt.Errorf("%w: ask with the prefix %q", errOthers, organisation+":")
		}
		return nil
	}},
	"GetOrganisation":   {shared: true}, // names and public keys
	"ListOrganisations": {shared: true},
	"GetAsset":          {shared: true}, // terms and sums, as the directory
	"ListAssets":        {shared: true},
	"GetKey": {asks: func(organisation string, request any) error {
		if request.(*ledgerdv1.GetKeyRequest).GetOrganisation() != organisation {
			return errOthers
		}
		return nil
	}},
	"GetRefundable": {shared: true}, // the receivers refund, and know the entry
	"GetHold": {answers: func(organisation string, answer any) error {
		hold := answer.(*ledgerdv1.GetHoldResponse).GetHold().GetHold()
		if !holdConcerns(organisation, hold) {
			return errOthers
		}
		return nil
	}},
	"ListHolds": {asks: func(organisation string, request any) error {
		wanted := request.(*ledgerdv1.ListHoldsRequest)
		if wanted.GetOrganisation() == organisation || wanted.GetPoster() == organisation ||
			owns(organisation, wanted.GetAccount()) == nil {
			return nil
		}
		return fmt.Errorf("%w: ask for those of %s, or those that it may post", errOthers,
			organisation)
	}},
	"GetSchedule": {answers: func(organisation string, answer any) error {
		open := answer.(*ledgerdv1.GetScheduleResponse).GetSchedule()
		if open.GetSigner() != organisation && !scheduleConcerns(organisation, open.GetSchedule()) {
			return errOthers
		}
		return nil
	}},
	"ListSchedules": {asks: func(organisation string, request any) error {
		if request.(*ledgerdv1.ListSchedulesRequest).GetOrganisation() != organisation {
			return fmt.Errorf("%w: ask for those of %s", errOthers, organisation)
		}
		return nil
	}},
	"GetNonce": {asks: func(organisation string, request any) error {
		if request.(*ledgerdv1.GetNonceRequest).GetOrganisation() != organisation {
			return errOthers
		}
		return nil
	}},
	"GetUse": {asks: func(organisation string, request any) error {
		if request.(*ledgerdv1.GetUseRequest).GetOrganisation() != organisation {
			return errOthers
		}
		return nil
	}},
	"GetCut":   {shared: true}, // heights
	"GetPlace": {shared: true},
	"GetProof": {answers: func(organisation string, answer any) error {
		canonical := answer.(*ledgerdv1.GetProofResponse).GetProof().GetCanonicalTransaction()
		transaction, err := ledger.DecodeBody(canonical)
		if err != nil || !transactionConcerns(organisation, transaction) {
			return errOthers
		}
		return nil
	}},
	"GetCertificate": {shared: true}, // hashes and signatures of members
	"ListEvidence":   {shared: true},
	"GetFigures":     {shared: true}, // counts
	"Search":         {},
	"GetNode":        {shared: true},
	"GetCluster":     {shared: true},
	"GetTree":        {shared: true},
	"GetGenesis":     {shared: true},
	"GetSnapshot":    {},
	"GetSeed":        {},
	"Subscribe": {asks: func(_ string, request any) error {
		if request.(*ledgerdv1.SubscribeRequest).GetWithTransactions() {
			return fmt.Errorf("%w: subscribe without transactions", errOthers)
		}
		return nil
	}},
	"WatchCluster": {shared: true},
	"WatchTree":    {shared: true},
	// When which member sent how much tells an organisation about the traffic of others.
	"GetRounds":   {},
	"WatchRounds": {},
}

// allow decides about a call before it runs.
func allow(caller *doors.Caller, method string, request any) error {
	rule, known := rules[method]
	switch {
	case caller.Role == doors.RoleOperator:
		return nil
	case caller.Role == doors.RoleNone:
		return connect.NewError(connect.CodeUnauthenticated, doors.ErrUnidentified)
	case known && caller.Role == doors.RoleAuditor && !rule.writes:
		return nil
	case known && caller.Role == doors.RoleOrganisation && rule.asks != nil:
		return denied(caller, rule.asks(caller.Organisation, request))
	case known && caller.Role == doors.RoleOrganisation &&
		(rule.shared || rule.each || rule.answers != nil):
		return nil
	}
	return denied(caller, fmt.Errorf("the role %s does not make the call %s", caller.Role, method))
}

// allowAnswer decides about a call's answer, and may shorten it.
func allowAnswer(caller *doors.Caller, method string, answer any) error {
	if caller.Role != doors.RoleOrganisation || rules[method].answers == nil {
		return nil
	}
	return denied(caller, rules[method].answers(caller.Organisation, answer))
}

// concealed returns the error of a call that failed, or that the caller may not make it.
func concealed(caller *doors.Caller, method string, request any, failure error) error {
	rule := rules[method]
	if caller.Role == doors.RoleOrganisation && rule.conceals != nil {
		if err := denied(caller, rule.conceals(caller.Organisation, request)); err != nil {
			return err
		}
	}
	return failure
}

func denied(caller *doors.Caller, err error) error {
	if err == nil {
		return nil
	}
	return connect.NewError(connect.CodePermissionDenied, fmt.Errorf("%w (you are %s)", err,
		caller.Name))
}

// owns returns an error unless a path, or the prefix of paths, is below an organisation.
func owns(organisation, path string) error {
	if !strings.HasPrefix(path, organisation+":") {
		return errOthers
	}
	return nil
}

// signs returns an error unless an organisation is one of a bundle's signers.
func signs(organisation string, bundle *ledgerdv1.Bundle) error {
	for _, signature := range bundle.GetSignatures() {
		if signature.GetOrganisation() == organisation {
			return nil
		}
	}
	return signedNothing(organisation)
}

// signsAmong is signs for a bundle that is decoded.
func signsAmong(organisation string, bundle *ledger.Bundle) error {
	for _, signature := range bundle.Signatures() {
		if string(signature.Organisation) == organisation {
			return nil
		}
	}
	return signedNothing(organisation)
}

func signedNothing(organisation string) error {
	return fmt.Errorf("an organisation submits what it signs: %s signed nothing here", organisation)
}

// concerns returns an error unless a transaction is an organisation's own, or touches its accounts
// or records.
func concerns(organisation string, transaction *ledgerdv1.Transaction) error {
	body := transaction.GetBody()
	if body == nil || body.GetSigner() == organisation {
		return nil // without a body, this is a status
	}
	for _, signature := range transaction.GetSignatures() {
		if signature.GetOrganisation() == organisation {
			return nil
		}
	}
	for _, posting := range body.GetPostings() {
		if owns(organisation, posting.GetAccount()) == nil {
			return nil
		}
	}
	for _, record := range body.GetRecords() {
		if owns(organisation, record.GetKey()) == nil {
			return nil
		}
	}
	if holdConcerns(organisation, body.GetHold()) ||
		scheduleConcerns(organisation, body.GetSchedule()) ||
		owns(organisation, body.GetHoldEnd().GetAccount()) == nil ||
		changeConcerns(organisation, body.GetAccountChange()) {
		return nil
	}
	return errOthers
}

// changeConcerns reports whether the terms of an organisation's account change, which its guardian
// may sign alone, or those of one that it guards.
func changeConcerns(organisation string, change *ledgerdv1.AccountChange) bool {
	return owns(organisation, change.GetAccount()) == nil ||
		change.GetTerms().GetGuardian() == organisation
}

func summaryConcerns(organisation string, summary *ledgerdv1.TransactionSummary) bool {
	return summary.GetSigner() == organisation || holdConcerns(organisation, summary.GetHold()) ||
		scheduleConcerns(organisation, summary.GetSchedule()) ||
		owns(organisation, summary.GetHoldEnd().GetAccount()) == nil ||
		changeConcerns(organisation, summary.GetAccountChange()) ||
		slices.Contains(summary.GetFurtherOrganisations(), organisation) ||
		slices.ContainsFunc(summary.GetPostings(), func(posting *ledgerdv1.Posting) bool {
			return owns(organisation, posting.GetAccount()) == nil
		})
}

func transactionConcerns(organisation string, transaction *ledger.Transaction) bool {
	if end := transaction.HoldEnd; end != nil && owns(organisation, string(end.From)) == nil {
		return true
	}
	return string(transaction.Signer) == organisation ||
		holdConcerns(organisation, holdToProto(transaction.Hold)) ||
		scheduleConcerns(organisation, scheduleToProto(transaction.Schedule)) ||
		changeConcerns(organisation, accountChangeToProto(transaction.Account)) ||
		slices.ContainsFunc(transaction.Postings, func(posting ledger.Posting) bool {
			return owns(organisation, string(posting.Account)) == nil
		})
}

// WrapUnary implements connect.Interceptor.
func (access) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		caller, method := doors.CallerOf(ctx), path.Base(request.Spec().Procedure)
		if err := allow(caller, method, request.Any()); err != nil {
			return nil, err
		}
		answer, err := next(ctx, request)
		if err != nil {
			return nil, concealed(caller, method, request.Any(), err)
		}
		if err := allowAnswer(caller, method, answer.Any()); err != nil {
			return nil, err
		}
		return answer, nil
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (access) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor. A stream has one request, which the handler
// receives first, unless its client streams requests.
func (access) WrapStreamingHandler(
	next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, connection connect.StreamingHandlerConn) error {
		caller, method := doors.CallerOf(ctx), path.Base(connection.Spec().Procedure)
		if rules[method].each {
			if err := allow(caller, method, nil); err != nil {
				return err
			}
			return next(ctx, connection)
		}
		return next(ctx, &askedConnection{StreamingHandlerConn: connection, caller: caller})
	}
}

// askedConnection decides about a stream's request once it arrives.
type askedConnection struct {
	connect.StreamingHandlerConn
	caller *doors.Caller
}

// Receive implements connect.StreamingHandlerConn.
func (c *askedConnection) Receive(message any) error {
	if err := c.StreamingHandlerConn.Receive(message); err != nil {
		return err
	}
	return allow(c.caller, path.Base(c.Spec().Procedure), message)
}
