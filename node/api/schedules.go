package api

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// SchedulesPage is the size of a page of schedules, unless the request says another one.
const SchedulesPage = 100

func scheduleToProto(s *ledger.Schedule) *ledgerdv1.Schedule {
	if s == nil {
		return nil
	}
	return &ledgerdv1.Schedule{Shard: uint32(s.Shard), Postings: postingsToProto(s.Postings),
		FirstMs: uint64(s.First), Period: s.Period.String(), Every: uint32(s.Every),
		Count: uint32(s.Count), UntilMs: uint64(s.Until)}
}

// ScheduleFromProto reads a schedule, or nil if there is none. It checks the form of its parts, and
// Schedule.Validate checks the rest.
func ScheduleFromProto(message *ledgerdv1.Schedule) (*ledger.Schedule, error) {
	if message == nil {
		return nil, nil
	}
	if message.GetFirstMs() > 1<<63-1 || message.GetUntilMs() > 1<<63-1 {
		return nil, errors.New("the schedule has a time that is none")
	}
	s := &ledger.Schedule{Shard: ledger.ShardID(message.GetShard()),
		First: ledger.Milliseconds(message.GetFirstMs()), Every: uint64(message.GetEvery()),
		Count: uint64(message.GetCount()), Until: ledger.Milliseconds(message.GetUntilMs())}
	var err error
	if text := message.GetPeriod(); text != "" {
		if s.Period, err = ledger.ParsePeriod(text); err != nil {
			return nil, err
		}
	}
	s.Postings, err = postingsFromProto(message.GetPostings())
	return s, err
}

func scheduleEndToProto(end *ledger.ScheduleEnd) *ledgerdv1.ScheduleEnd {
	if end == nil {
		return nil
	}
	return &ledgerdv1.ScheduleEnd{Shard: uint32(end.Shard), ScheduleHex: end.Schedule.String()}
}

func scheduleEndFromProto(message *ledgerdv1.ScheduleEnd) (*ledger.ScheduleEnd, error) {
	if message == nil {
		return nil, nil
	}
	id, err := ledger.ParseHash(message.GetScheduleHex())
	if err != nil {
		return nil, fmt.Errorf("the schedule that it ends: %w", err)
	}
	return &ledger.ScheduleEnd{Shard: ledger.ShardID(message.GetShard()), Schedule: id}, nil
}

func occurrenceToProto(o *ledger.Occurrence) *ledgerdv1.Occurrence {
	if o == nil {
		return nil
	}
	return &ledgerdv1.Occurrence{ScheduleHex: o.Schedule.String(), Number: uint32(o.Number),
		TimeMs: uint64(o.Time)}
}

// scheduleConcerns reports whether a schedule has a posting of an organisation.
func scheduleConcerns(organisation string, schedule *ledgerdv1.Schedule) bool {
	return slices.ContainsFunc(schedule.GetPostings(), func(p *ledgerdv1.Posting) bool {
		return owns(organisation, p.GetAccount()) == nil
	})
}

func openScheduleToProto(open *store.OpenSchedule) *ledgerdv1.OpenSchedule {
	return &ledgerdv1.OpenSchedule{ScheduleHex: open.ID.String(), Signer: string(open.Signer),
		Schedule: scheduleToProto(&open.Schedule), Note: noteToProto(open.Note),
		Issued: uint32(open.Issued), Occurrences: uint32(open.Occurrences()),
		NextMs: uint64(open.Next)}
}

// GetSchedule returns a schedule of this shard.
func (s *Service) GetSchedule(_ context.Context,
	request *connect.Request[ledgerdv1.GetScheduleRequest]) (
	*connect.Response[ledgerdv1.GetScheduleResponse], error) {
	id, err := ledger.ParseHash(request.Msg.GetScheduleHex())
	if err != nil {
		return nil, invalid("schedule_hex: %w", err)
	}
	opened := s.backend.Store()
	height := opened.AppendedHeight()
	found, open := opened.Schedule(id)
	if !open {
		return nil, notFound("schedule %s has no occurrences to come: it has had all, or was "+
			"ended, or there never was one", id)
	}
	return connect.NewResponse(&ledgerdv1.GetScheduleResponse{
		Schedule: openScheduleToProto(&found), Height: uint64(height)}), nil
}

// ListSchedules returns schedules of this shard.
func (s *Service) ListSchedules(ctx context.Context,
	request *connect.Request[ledgerdv1.ListSchedulesRequest]) (
	*connect.Response[ledgerdv1.ListSchedulesResponse], error) {
	size, err := PageSize(request.Msg.GetPageSize(), SchedulesPage)
	if err != nil {
		return nil, err
	}
	after, err := HoldToken(request.Msg.GetPageToken())
	if err != nil {
		return nil, err
	}
	of := ledger.OrganisationName(request.Msg.GetOrganisation())
	if of != "" {
		if err := of.Validate(); err != nil {
			return nil, invalid("organisation: %w", err)
		}
	}
	found, next, more, err := s.backend.Store().OpenSchedules(after, size,
		func(open *store.OpenSchedule) bool { return of == "" || open.Signer == of })
	if err != nil {
		return nil, s.failure(ctx, "reading schedules", err)
	}
	answer := &ledgerdv1.ListSchedulesResponse{}
	for i := range found {
		answer.Schedules = append(answer.Schedules, openScheduleToProto(&found[i]))
	}
	if more {
		answer.NextPageToken = next.String()
	}
	return connect.NewResponse(answer), nil
}
