package node

import (
	"context"
	"log/slog"

	"github.com/ledgerd/ledgerd/order"
)

// memberKey is the key under which all packages of the node log a member of the shard. The key
// "node" names the node that logs.
const memberKey = "member"

// memberNames is a log handler that writes members by name. The packages below the node know a
// member by its index only and log that as an order.ServerID. An index without a known name stays a
// number.
type memberNames struct {
	slog.Handler
	name func(order.ServerID) string // returns "" if the name is not known
}

// Handle implements slog.Handler.
func (h *memberNames) Handle(ctx context.Context, record slog.Record) error {
	named := slog.NewRecord(record.Time, record.Level, record.Message, record.PC)
	record.Attrs(func(attr slog.Attr) bool {
		named.AddAttrs(h.named(attr))
		return true
	})
	return h.Handler.Handle(ctx, named)
}

// WithAttrs implements slog.Handler.
func (h *memberNames) WithAttrs(attrs []slog.Attr) slog.Handler {
	named := make([]slog.Attr, len(attrs))
	for i, attr := range attrs {
		named[i] = h.named(attr)
	}
	return &memberNames{h.Handler.WithAttrs(named), h.name}
}

// WithGroup implements slog.Handler.
func (h *memberNames) WithGroup(group string) slog.Handler {
	return &memberNames{h.Handler.WithGroup(group), h.name}
}

// named replaces a member's index with its name.
func (h *memberNames) named(attr slog.Attr) slog.Attr {
	if server, isMember := attr.Value.Any().(order.ServerID); isMember && attr.Key == memberKey {
		if name := h.name(server); name != "" {
			return slog.String(memberKey, name)
		}
	}
	return attr
}
