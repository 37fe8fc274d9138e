package bench

import (
	"context"
	"log/slog"

	"github.com/ledgerd/ledgerd/node/fabric"
)

// Run measures an engine. For a fabric between processes, command starts a server process: a
// program that calls Serve with its standard input and output. No process is left when Run returns.
// The error wraps ErrParameters, ErrServer, ErrDiverged or ctx's cause. The logger gets the
// servers' logs.
func Run(ctx context.Context, p Parameters, command []string, logger *slog.Logger) (Result, error) {
	if err := p.Validate(); err != nil {
		return Result{}, err
	}
	if p.Fabric == fabric.Memory {
		return runMemory(ctx, p, logger)
	}
	return runProcesses(ctx, p, command, logger)
}
