package client

import (
	"context"

	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Figures returns how many transactions a shard's chain has: in all, and by hour, day and month, of
// each as many of the newest as the request wants. A node counts only while it is asked, so Figures
// asks until the node has counted all blocks that there were at the first question.
func (c *Client) Figures(ctx context.Context,
	request *ledgerdv1.GetFiguresRequest) (*ledgerdv1.GetFiguresResponse, error) {
	var head, counted uint64
	for round := 0; ; round++ {
		answer, err := call(ctx, c, false, request, service.GetFigures)
		if err != nil {
			return nil, err
		}
		if round == 0 {
			head = answer.GetHeadHeight()
		}
		if answer.GetCountedHeight() >= head {
			return answer, nil
		}
		// Another node may have answered, which begins to count. Nothing hurries then.
		if answer.GetCountedHeight() <= counted {
			if err := c.pause(ctx, 1); err != nil {
				return nil, err
			}
		}
		counted = answer.GetCountedHeight()
	}
}
