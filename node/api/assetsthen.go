package api

import (
	"context"
	"errors"
	"strconv"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

func (s *Service) assetThenToProto(then *store.AssetThen, at Reached) *ledgerdv1.Asset {
	height := at.place.Height
	if !then.Known {
		height = s.backend.Store().AppendedHeight()
	}
	shown := s.assetToProto(&then.Asset, height)
	shown.TermsAtCut = then.Known
	return shown
}

// notAtCut is the error of a shard that was added after a cut: it issued nothing there, and its
// chain does not have the place.
func (s *Service) notAtCut() *connect.Error {
	return notFound("shard %d was added to the book after the cut: ask another shard",
		s.backend.Store().Shard())
}

// assetAtCut returns an asset as of a cut.
func (s *Service) assetAtCut(ctx context.Context, name ledger.AssetName, at Reached) (
	*connect.Response[ledgerdv1.GetAssetResponse], error) {
	if at.later {
		return nil, s.notAtCut()
	}
	var then store.AssetThen
	err := s.onceThere(ctx, readingAtCut, func(ledger.Height) (err error) {
		then, err = s.backend.Store().AssetAt(ctx, name, at.place)
		if errors.Is(err, store.ErrNotFound) {
			return notFound("asset %s was not registered at the cut", name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ledgerdv1.GetAssetResponse{AtCut: true,
		Asset: s.assetThenToProto(&then, at)}), nil
}

// assetsAtCut lists the assets with some names as of a cut, or else those after a number.
func (s *Service) assetsAtCut(ctx context.Context, names []string, after uint32, size int,
	at Reached) (*connect.Response[ledgerdv1.ListAssetsResponse], error) {
	if at.later {
		return nil, s.notAtCut()
	}
	var page []store.AssetThen
	err := s.onceThere(ctx, readingAtCut, func(ledger.Height) (err error) {
		page = nil
		for _, name := range names {
			then, err := s.backend.Store().AssetAt(ctx, ledger.AssetName(name), at.place)
			switch {
			case errors.Is(err, store.ErrNotFound):
			case err != nil:
				return err
			default:
				page = append(page, then)
			}
		}
		if len(names) == 0 {
			page, err = s.backend.Store().AssetsAt(ctx, after, size+1, at.place)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	answer := &ledgerdv1.ListAssetsResponse{AtCut: true}
	if len(names) == 0 && len(page) > size {
		page = page[:size]
		answer.NextPageToken = strconv.Itoa(int(page[size-1].Number))
	}
	for i := range page {
		answer.Assets = append(answer.Assets, s.assetThenToProto(&page[i], at))
	}
	return connect.NewResponse(answer), nil
}
