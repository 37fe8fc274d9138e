package client

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// ErrScheduleAnswer reports an answer about a schedule that no node gives.
var ErrScheduleAnswer = errors.New("client: the node's answer about a schedule is malformed")

// Schedule returns a schedule with occurrences to come. The code of the error is NotFound if there
// are none. The node is believed: what the schedule says is in the transaction with its id (Proof).
func (c *Client) Schedule(ctx context.Context, id ledger.Hash) (*ledgerdv1.OpenSchedule, error) {
	answer, err := call(ctx, c, false, &ledgerdv1.GetScheduleRequest{ScheduleHex: id.String()},
		service.GetSchedule)
	if err == nil {
		_, err = TermsOfSchedule(answer.GetSchedule())
	}
	if err == nil && answer.GetSchedule().GetScheduleHex() != id.String() {
		err = fmt.Errorf("%w: it is of %.80q", ErrScheduleAnswer,
			answer.GetSchedule().GetScheduleHex())
	}
	if err != nil {
		return nil, err
	}
	return answer.GetSchedule(), nil
}

// Schedules iterates over the schedules with occurrences to come that an organisation placed, or
// over all if it is "", in the order of their ids.
func (c *Client) Schedules(ctx context.Context,
	of ledger.OrganisationName) iter.Seq2[*ledgerdv1.OpenSchedule, error] {
	return pages(func(token string) ([]*ledgerdv1.OpenSchedule, string, error) {
		answer, err := call(ctx, c, true, &ledgerdv1.ListSchedulesRequest{
			Organisation: string(of), PageSize: iteratorPage, PageToken: token},
			service.ListSchedules)
		for _, schedule := range answer.GetSchedules() {
			if _, failure := TermsOfSchedule(schedule); err == nil {
				err = failure
			}
		}
		return answer.GetSchedules(), answer.GetNextPageToken(), err
	})
}

// TermsOfSchedule returns what a schedule says that a node names, or ErrScheduleAnswer.
func TermsOfSchedule(open *ledgerdv1.OpenSchedule) (*ledger.Schedule, error) {
	schedule, err := api.ScheduleFromProto(open.GetSchedule())
	if err == nil && schedule == nil {
		err = errors.New("it has no terms")
	}
	if err == nil {
		err = schedule.Validate(ledger.OrganisationName(open.GetSigner()))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrScheduleAnswer, err)
	}
	return schedule, nil
}

// PlaceSchedule returns the transaction that places a schedule. Post it with the key of the
// organisation that its postings take from; its id is that of the schedule.
func PlaceSchedule(schedule ledger.Schedule) ledger.Transaction {
	return ledger.Transaction{Schedule: &schedule}
}

// EndSchedule returns the transaction that ends a schedule, which is at a shard. Post it with the
// key of the organisation that placed the schedule.
func EndSchedule(id ledger.Hash, shard ledger.ShardID) ledger.Transaction {
	return ledger.Transaction{ScheduleEnd: &ledger.ScheduleEnd{Shard: shard, Schedule: id}}
}
