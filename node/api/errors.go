package api

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/report"
)

// Headers in an error's metadata.
const (
	// HeaderRetry is "true" if the caller may make the same call again, here after a moment or at
	// another node.
	HeaderRetry = "Ledgerd-Retry"
	// HeaderUnsure is "true" if a submission may have been admitted despite the error: the node
	// passed it to another shard, where a member did not answer, or it failed once it had admitted
	// it.
	HeaderUnsure = "Ledgerd-Unsure"
	// HeaderReason is a stable word for why a bundle was refused: because of another shard
	// (shard_down, shard_full or shard_lost; see report.Refusal), or because all of its
	// transactions must fail, with the code of their result (Foreseen). Other errors do not have
	// it. A caller that makes the same call again at once has little hope, here or elsewhere.
	HeaderReason = "Ledgerd-Reason"
	// HeaderWriters lists the API addresses of nodes that take writes, separated by commas.
	HeaderWriters = "Ledgerd-Writers"
)

// Retryable returns the error of a call that the caller may make again.
func Retryable(code connect.Code, err error, writers []string) *connect.Error {
	refused := connect.NewError(code, err)
	refused.Meta().Set(HeaderRetry, "true")
	if len(writers) > 0 {
		refused.Meta().Set(HeaderWriters, strings.Join(writers, ","))
	}
	return refused
}

// Unsure marks the error of a submission that may have been admitted.
func Unsure(err error) *connect.Error {
	coded := (*connect.Error)(nil)
	if !errors.As(err, &coded) {
		coded = connect.NewError(connect.CodeUnknown, err)
	}
	coded.Meta().Set(HeaderUnsure, "true")
	return coded
}

// writersIn returns the addresses that Retryable was given.
func writersIn(refused *connect.Error) []string {
	if writers := refused.Meta().Get(HeaderWriters); writers != "" {
		return strings.Split(writers, ",")
	}
	return nil
}

func invalid(format string, arguments ...any) *connect.Error {
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf(format, arguments...))
}

func notFound(format string, arguments ...any) *connect.Error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf(format, arguments...))
}

// Foreseen returns the result that all transactions of a refused bundle would have, given the word
// for its refusal (HeaderReason, or reason_code in messages). foreseen is false if it was refused
// for another reason. They are in no block, and no block can apply them any more.
func Foreseen(word string) (code ledger.Code, foreseen bool) {
	for code := range ledger.Code(len(reasonCodes)) {
		if code.Foreseeable() && reasonCodes[code] == word {
			return code, true
		}
	}
	return ledger.Applied, false
}

// RefusalError converts a refusal to the error of a call.
func RefusalError(refusal *report.Refusal) *connect.Error {
	refused := refusalError(refusal)
	if refusal.Unsure {
		return Unsure(refused)
	}
	return refused
}

func refusalError(refusal *report.Refusal) *connect.Error {
	refused := refusalOf(refusal)
	if word := refusal.Word(); word != "" {
		refused.Meta().Set(HeaderReason, word)
	}
	return refused
}

// refusalOf is refusalError without the reason in one word.
func refusalOf(refusal *report.Refusal) *connect.Error {
	if refusal.Retry() {
		code := connect.CodeUnavailable
		switch refusal.Code {
		case report.RefusedOverloaded, report.RefusedShardFull:
			code = connect.CodeResourceExhausted
		}
		return Retryable(code, refusal, refusal.Writers)
	}
	code := connect.CodeInvalidArgument
	switch refusal.Code {
	case report.RefusedSignature:
		code = connect.CodePermissionDenied
	case report.RefusedUnknownOrganisation, report.RefusedExpired, report.RefusedShardLost,
		report.RefusedForeseen:
		code = connect.CodeFailedPrecondition
	}
	return connect.NewError(code, refusal)
}

// failure converts an internal error of the node to the error of a call. An ended context keeps its
// meaning. Damage that the store found is data loss; another node can answer the call.
func (s *Service) failure(ctx context.Context, doing string, err error) *connect.Error {
	if failed := ContextError(ctx); failed != nil {
		return failed
	}
	if coded := (*connect.Error)(nil); errors.As(err, &coded) {
		return coded
	}
	if errors.Is(err, store.ErrAbsent) {
		return Retryable(connect.CodeUnavailable, fmt.Errorf("%s: %w", doing, err), nil)
	}
	s.options.Logger.Error("an API call failed", "doing", doing, "error", err)
	return connect.NewError(connect.CodeDataLoss,
		fmt.Errorf("%s: %w: ask another node, and run `ledgerd verify` on this one", doing, err))
}

// ContextError returns the error of a call whose context has ended, or nil.
func ContextError(ctx context.Context) *connect.Error {
	switch err := ctx.Err(); {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded,
			errors.New("the deadline passed: allow more time or ask for less"))
	default:
		return connect.NewError(connect.CodeCanceled, err)
	}
}
