package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/bench"
	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// The two sides of a measurement.
const (
	sideAnswering = "answering"
	sideMeasuring = "measuring"
)

// closePatience limits how long the hosts of a measurement may take to close.
const closePatience = 5 * time.Second

// fabricMeasureOptions are the flags of ledgerd fabric measure.
type fabricMeasureOptions struct {
	kind            fabric.Kind
	listen, connect string
	token           string
	device, gid     string
	measured        time.Duration
	json            bool
}

// newFabricMeasureCommand returns the `ledgerd fabric measure` command.
func newFabricMeasureCommand() *cobra.Command {
	var o fabricMeasureOptions
	command := &cobra.Command{
		Use:   "measure",
		Short: "Measure latency and bandwidth between two nodes",
		Long: `Measure latency and bandwidth between two nodes, as a ledger's nodes get them:
of lanes, which carry rounds, and of regions, one-sided memory, where the fabric
has them.

Without --listen and --connect both ends are in this process, and talk over the
loopback interface or the RDMA device: each fabric that works here is measured,
or only the one that --fabric names.

Between two machines, one listens and prints the command for the other:

  ledgerd fabric measure --listen 0.0.0.0:26700 --fabric p2p

Anyone with the token may measure. The keys of --json, for each fabric:

  lanes.round_trip_us_p50, _p99   64 bytes there and back, in microseconds
  lanes.frames_per_second         frames of 64 bytes, one way
  lanes.bytes_per_second          with frames of 64 KiB, one way; memory hands
                                  them over without a copy
  regions.write_us_p50, _p99      64 bytes written into the other's memory,
                                  until they have certainly arrived
  regions.read_us_p50, _p99       64 bytes read from it
  regions.write_bytes_per_second  with 64 KiB, 16 writes outstanding
  regions.read_bytes_per_second   the same for reads`,
		Example: `  ledgerd fabric measure
  ledgerd fabric measure --fabric verbs --for 10s --json
  ledgerd fabric measure --listen 0.0.0.0:26700 --fabric p2p-trusted`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return asUsage(err)
			}
			ctx, stop := signal.NotifyContext(command.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			logger := slog.New(slog.NewTextHandler(command.ErrOrStderr(),
				&slog.HandlerOptions{Level: slog.LevelWarn}))
			out := command.OutOrStdout()
			if o.listen != "" {
				return o.answer(ctx, command.ErrOrStderr(), logger)
			}
			results := []bench.FabricResult{}
			for _, kind := range o.kinds() {
				measure := o.measureHere
				if o.connect != "" {
					measure = o.measureThere
				}
				result, err := measure(ctx, kind, logger)
				if err != nil {
					return fmt.Errorf("%s: %w", kind, err)
				}
				results = append(results, result)
				if !o.json {
					if err := writeFabricResult(out, result); err != nil {
						return err
					}
				}
			}
			if o.json {
				return writeJSON(out, results)
			}
			return nil
		},
	}
	flags := command.Flags()
	addFabricFlag(command, &o.kind, "")
	flags.Lookup("fabric").Usage = "the fabric: memory, p2p, p2p-trusted, shm or verbs " +
		"(default: all that work here; p2p between machines)"
	flags.StringVar(&o.listen, "listen", "", "host:port: answer one measurement")
	flags.StringVar(&o.connect, "connect", "", "host:port: measure to the side that listens there")
	flags.StringVar(&o.token, "token", "", "secret that both sides need; the side that listens "+
		"makes it")
	flags.StringVar(&o.device, "device", "",
		"RDMA device, for verbs (default: the first that is active)")
	flags.StringVar(&o.gid, "gid", "", "the RDMA device's address or its index, for verbs")
	flags.DurationVar(&o.measured, "for", 2*time.Second, "how long to measure each fabric")
	addJSONFlag(command, &o.json)
	return command
}

// validate checks the flags and fills in the fabric of a measurement between machines.
func (o *fabricMeasureOptions) validate() error {
	if o.kind == "" && (o.listen != "" || o.connect != "") {
		o.kind = fabric.P2P
	}
	if o.kind != "" {
		if _, err := fabric.Parse(string(o.kind)); err != nil {
			return err
		}
	}
	switch {
	case o.listen != "" && o.connect != "":
		return errors.New("--listen and --connect are for two sides: give one of them on each " +
			"machine")
	case o.kind == fabric.Memory && (o.listen != "" || o.connect != ""):
		return fmt.Errorf("%w: leave --listen and --connect out", fabric.ErrOneProcess)
	case o.connect != "" && o.token == "":
		return errors.New("--token is missing: the side that listens prints it")
	case o.token != "" && o.listen == "" && o.connect == "":
		return errors.New("--token is for --listen and --connect")
	case o.measured <= 0:
		return fmt.Errorf("--for is %v: it has to be above zero", o.measured)
	}
	return nil
}

// kinds returns the fabrics to measure.
func (o *fabricMeasureOptions) kinds() []fabric.Kind {
	if o.kind != "" {
		return []fabric.Kind{o.kind}
	}
	return usableFabrics()
}

// usableFabrics returns the fabrics that work on this machine.
func usableFabrics() []fabric.Kind {
	var kinds []fabric.Kind
	for _, provider := range fabric.Providers() {
		if provider.Usable {
			kinds = append(kinds, provider.Kind)
		}
	}
	return kinds
}

// measureHere measures between two hosts in this process.
func (o *fabricMeasureOptions) measureHere(ctx context.Context, kind fabric.Kind,
	logger *slog.Logger) (result bench.FabricResult, err error) {
	hosts, err := openHosts(kind, 2, fabric.Options{Device: o.device, GID: o.gid, Logger: logger})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, closeHosts(hosts)) }()
	if _, err := bench.AnswerFabric(hosts[0]); err != nil {
		return result, err
	}
	return bench.MeasureFabric(ctx, kind, hosts[1], hosts[0].ID(), o.measured)
}

// openHosts opens count hosts in this process, on the loopback interface or the RDMA device. Each
// has a new key, and all are members of each other.
func openHosts(kind fabric.Kind, count int, options fabric.Options) (hosts []rdmanet.Host,
	err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, closeHosts(hosts))
			hosts = nil
		}
	}()
	if kind == fabric.Memory {
		network := memory.NewNetwork()
		for i := range count {
			host, err := network.Host(rdmanet.PeerID(fmt.Sprintf("host-%d", i)))
			if err != nil {
				return hosts, err
			}
			hosts = append(hosts, host)
		}
		return hosts, nil
	}
	members := map[rdmanet.PeerID]string{}
	var between []fabric.Host
	for range count {
		key, err := p2p.NewIdentity(rand.Reader)
		if err != nil {
			return hosts, err
		}
		options.Key, options.Listen = key, "127.0.0.1:0"
		host, err := fabric.Open(kind, options)
		if err != nil {
			return hosts, err
		}
		hosts, between = append(hosts, host), append(between, host)
		members[host.ID()] = host.Address()
	}
	for _, host := range between {
		if err := host.SetMembers(members); err != nil {
			return hosts, err
		}
	}
	return hosts, nil
}

func closeHosts(hosts []rdmanet.Host) (err error) {
	for _, host := range hosts {
		err = errors.Join(err, closeHost(host))
	}
	return err
}

func (o *fabricMeasureOptions) open(kind fabric.Kind, key ed25519.PrivateKey, listen string,
	members map[rdmanet.PeerID]string, logger *slog.Logger) (fabric.Host, error) {
	return fabric.Open(kind, fabric.Options{Key: key, Listen: listen, Members: members,
		Device: o.device, GID: o.gid, Logger: logger})
}

func closeHost(host rdmanet.Host) error {
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	return host.Close(ctx)
}

// sideOf derives the key of one side from the shared token, and the identity of the other side.
func (o *fabricMeasureOptions) sideOf(own, other string) (key ed25519.PrivateKey,
	peer rdmanet.PeerID, err error) {
	make := func(side string) ed25519.PrivateKey {
		seed := sha256.Sum256([]byte("ledgerd fabric measure, " + side + ": " + o.token))
		return ed25519.NewKeyFromSeed(seed[:])
	}
	peer, err = p2p.PeerID(make(other).Public().(ed25519.PublicKey))
	return make(own), peer, err
}

// answer listens until one measurement has ended.
func (o *fabricMeasureOptions) answer(ctx context.Context, errs io.Writer,
	logger *slog.Logger) (err error) {
	if o.token == "" {
		o.token = rand.Text()
	}
	key, peer, err := o.sideOf(sideAnswering, sideMeasuring)
	if err != nil {
		return err
	}
	host, err := o.open(o.kind, key, o.listen, map[rdmanet.PeerID]string{peer: ""}, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeHost(host)) }()
	answerer, err := bench.AnswerFabric(host)
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(host.Address())
	if err != nil {
		return err
	}
	// People and programs read this line from the standard error.
	if _, err := fmt.Fprintf(errs, "listening; on the other machine, with this one's "+
		"address:\n\n  ledgerd fabric measure --fabric %s --connect ADDRESS:%s --token %s\n\n",
		o.kind, port, o.token); err != nil {
		return err
	}
	select {
	case <-answerer.Ended():
		return nil
	case <-ctx.Done():
		return nil
	}
}

// measureThere measures to the side that listens.
func (o *fabricMeasureOptions) measureThere(ctx context.Context, kind fabric.Kind,
	logger *slog.Logger) (result bench.FabricResult, err error) {
	key, peer, err := o.sideOf(sideMeasuring, sideAnswering)
	if err != nil {
		return result, err
	}
	host, err := o.open(kind, key, "0.0.0.0:0", map[rdmanet.PeerID]string{peer: o.connect}, logger)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, closeHost(host)) }()
	result, err = bench.MeasureFabric(ctx, kind, host, peer, o.measured)
	if errors.Is(err, rdmanet.ErrUnreachable) {
		return result, fmt.Errorf("%w: is `ledgerd fabric measure --listen` running there, over "+
			"%s, with this token?", err, kind)
	}
	return result, err
}

// writeFabricResult writes a result as text.
func writeFabricResult(out io.Writer, r bench.FabricResult) error {
	_, err := fmt.Fprintf(out, `%s, %.1f s
  lanes    64 bytes and back  %9.1f us median  %9.1f us 99th percentile
           one way            %9.2f GB/s       %9.2f million frames/s of 64 bytes
`, r.Fabric, r.Seconds, r.Lanes.RoundTripP50, r.Lanes.RoundTripP99, r.Lanes.BytesPerSecond/1e9,
		r.Lanes.FramesPerSecond/1e6)
	if err != nil || r.Regions == nil {
		return err
	}
	_, err = fmt.Fprintf(out,
		`  regions  write 64 bytes     %9.1f us median  %9.1f us 99th percentile
           read 64 bytes      %9.1f us median  %9.1f us 99th percentile
           write, read        %9.2f GB/s       %9.2f GB/s
`, r.Regions.WriteP50, r.Regions.WriteP99, r.Regions.ReadP50, r.Regions.ReadP99,
		r.Regions.WriteBytesPerSecond/1e9, r.Regions.ReadBytesPerSecond/1e9)
	return err
}
