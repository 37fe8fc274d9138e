// A made-up recording of rounds of five nodes, as node 0 sees it: some unreliable rounds, then node
// 4 fails, and a reliable round goes on without it.
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  RecordingSchema,
  RoundEventKind as Kind,
  type Recording,
  type RoundEventSchema,
} from "../src/gen/ledgerd/v1/rounds_pb";

const others = [1, 2, 3, 4];
const everybody = [0, ...others];

/** Makes a recording. name gives the members' names. */
export function fakeRecording(name: (index: number) => string, unreliable = 3): Recording {
  const run = 65_536n;
  const events: MessageInitShape<typeof RoundEventSchema>[] = [];
  let at = 12_000_000n;
  const add = (event: MessageInitShape<typeof RoundEventSchema>): void => {
    at += 140n;
    events.push({ number: BigInt(events.length + 1), atUs: at, run, ...event });
  };
  add({ kind: Kind.MODE, epoch: 1n, round: 7n });
  let round = 7n;
  for (let i = 0; i < unreliable; i++, round++) {
    const state = { epoch: 1n, round };
    add({ kind: Kind.BROADCAST, ...state, origin: 0, bytes: 180n });
    for (const to of [1, 2, 4])
      add({ kind: Kind.SENT, frame: "BCAST", ...state, from: 0, to, origin: 0, bytes: 212n });
    add({ kind: Kind.WAITS, ...state, servers: others });
    for (const from of others) {
      add({ kind: Kind.RECEIVED, frame: "BCAST", ...state, from, to: 0, origin: from, bytes: 52n });
      add({ kind: Kind.WAITS, ...state, servers: others.filter((each) => each > from) });
    }
    add({ kind: Kind.DELIVERED, ...state, servers: everybody, bytes: 200n });
    add({
      kind: Kind.SEALED,
      run: 0n,
      epoch: 5n,
      round,
      height: 40n + BigInt(i),
      blockTimeMs: 1_790_000_000_000n + BigInt(i),
    });
  }
  const state = { epoch: 2n, round };
  add({ kind: Kind.SUSPECTED, epoch: 1n, round, origin: 4 });
  for (const to of [1, 2])
    add({ kind: Kind.SENT, frame: "FAIL", from: 0, to, origin: 0, target: 4, bytes: 24n });
  add({ kind: Kind.MODE, ...state, reliable: true });
  for (const to of [1, 2])
    add({ kind: Kind.SENT, frame: "RBCAST", ...state, from: 0, to, origin: 0, bytes: 52n });
  add({ kind: Kind.WAITS, ...state, reliable: true, servers: others });
  add({ kind: Kind.TRACKS, ...state, reliable: true, origin: 4, servers: [1, 3] });
  for (const from of [1, 2, 3]) {
    add({ kind: Kind.RECEIVED, frame: "RBCAST", ...state, from, to: 0, origin: from, bytes: 52n });
    add({
      kind: Kind.WAITS,
      ...state,
      reliable: true,
      servers: others.filter((each) => each > from),
    });
  }
  add({
    kind: Kind.RECEIVED,
    frame: "FAIL",
    from: 3,
    to: 0,
    origin: 3,
    target: 4,
    bytes: 24n,
  });
  add({ kind: Kind.TRACKS, ...state, reliable: true, origin: 4, servers: [1] });
  add({ kind: Kind.WAITS, ...state, reliable: true });
  add({ kind: Kind.DELIVERED, ...state, servers: [0, 1, 2, 3], bytes: 0n });
  add({ kind: Kind.REMOVED, ...state, servers: [4] });
  return create(RecordingSchema, {
    format: 1,
    chain: "demo",
    engine: "allconcur+",
    begunMs: 1_790_000_000_000n,
    members: everybody.map((index) => ({ index, name: name(index) })),
    runs: [
      {
        run: 65_535n,
        generation: 0n,
        eon: 65_535,
        firstRound: 1n,
        members: [0, 1, 2, 3],
        edges: [],
        begunUs: 1_000n,
        endedUs: 11_000_000n,
        end: "the eon is over",
      },
      {
        run,
        generation: 1n,
        eon: 0,
        firstRound: 7n,
        members: everybody,
        edges: everybody.flatMap((from) =>
          [1, 2, 3].map((by) => ({ from, to: (from + by) % everybody.length })),
        ),
        begunUs: 11_000_500n,
      },
    ],
    events,
  });
}
