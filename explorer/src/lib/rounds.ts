// What passed at one node in its rounds: a recording, and the state of the round at each event of
// it. The page of rounds shows it live or step by step.
import { create, fromJsonString, toJsonString } from "@bufbuild/protobuf";
import {
  RecordingSchema,
  RoundEventKind,
  type Recording,
  type RoundEvent,
  type RoundRun,
} from "../gen/ledgerd/v1/rounds_pb";
import type { Table } from "./csv";
import { isoTime } from "./format";

/** The most events that a page keeps. The oldest go first. */
export const maxEvents = 20_000;
/** The largest file that a page opens. */
export const maxFileBytes = 32 << 20;

export interface Edge {
  from: number;
  to: number;
}

/** The round as the node sees it after an event. */
export interface Scene {
  run: RoundRun | undefined;
  members: readonly number[];
  epoch: bigint;
  round: bigint;
  reliable: boolean;
  decided: boolean;
  /** The node has not A-broadcast its message of the round, so the round has not begun here. */
  idle: boolean;
  /** Whom the round waits for; nobody while it has not begun. */
  awaited: readonly number[];
  suspected: readonly number[];
  /** Failure notifications that passed in this run: who says that whom failed. */
  failures: readonly { owner: number; target: number }[];
  /** After a failure: where the message of a server can still be. */
  tracks: readonly { origin: number; servers: readonly number[] }[];
  /** The edges that frames took in the current round, as "from-to". */
  used: ReadonlySet<string>;
}

/** Reads a downloaded recording. It throws an error with a sentence for the reader. */
export function parseRecording(text: string): Recording {
  if (text.length > maxFileBytes) throw new Error("The file is too large for a recording.");
  let read: Recording;
  try {
    read = fromJsonString(RecordingSchema, text);
  } catch (error) {
    throw new Error(`The file is no recording of rounds: ${(error as Error).message}.`);
  }
  if (read.format !== 1) throw new Error(`The file has format ${read.format}; this page reads 1.`);
  if (read.events.length > 4 * maxEvents) throw new Error("The file has too many events.");
  return read;
}

/** A recording as a file: the same as `ledgerd rounds --out` writes. */
export function recordingText(recording: Recording): string {
  return `${toJsonString(RecordingSchema, recording, { useProtoFieldName: true })}\n`;
}

/** Adds what came on a stream. The first message of a stream has the chain and the runs. */
export function joined(before: Recording | undefined, more: Recording): Recording {
  if (!before) return more;
  const events = [...before.events, ...more.events];
  return create(RecordingSchema, {
    ...before,
    $unknown: [],
    runs: more.runs.length > 0 ? more.runs : before.runs,
    members: more.members.length > 0 ? more.members : before.members,
    events: events.slice(Math.max(0, events.length - maxEvents)),
    dropped: before.dropped + more.dropped,
  });
}

export function namesOf(recording: Recording): ReadonlyMap<number, string> {
  return new Map(
    recording.members.map(({ index, name }) => [index, name === "" ? `member ${index}` : name]),
  );
}

export function isFrame(event: RoundEvent): boolean {
  return event.kind === RoundEventKind.RECEIVED || event.kind === RoundEventKind.SENT;
}

export const edgeName = (edge: Edge): string => `${edge.from}-${edge.to}`;

export function edgeOf(event: RoundEvent): Edge {
  return { from: event.from ?? 0, to: event.to ?? 0 };
}

/** Returns the round after the event at a place. Place -1 is before the first one. */
export function sceneAt(recording: Recording, place: number): Scene {
  let run = runAt(recording, recording.events[0]?.run);
  let epoch = 0n;
  let round = 0n;
  let reliable = false;
  let decided = false;
  let awaited: readonly number[] = [];
  let suspected = new Set<number>();
  let failures: { owner: number; target: number }[] = [];
  let tracks: { origin: number; servers: readonly number[] }[] = [];
  let used = new Set<string>();
  for (const event of recording.events.slice(0, place + 1)) {
    // A block has no run: it may come from a peer.
    if (event.kind !== RoundEventKind.SEALED && event.run !== run?.run) {
      run = runAt(recording, event.run);
      [awaited, suspected, failures, tracks, used] = [[], new Set(), [], [], new Set()];
    }
    switch (event.kind) {
      case RoundEventKind.WAITS:
      case RoundEventKind.MODE:
      case RoundEventKind.BROADCAST:
        if (event.epoch !== epoch || event.round !== round) {
          used = new Set();
          tracks = [];
        }
        ({ epoch, round } = event);
        if (event.kind !== RoundEventKind.BROADCAST) ({ reliable } = event);
        if (event.kind === RoundEventKind.WAITS) {
          awaited = event.servers;
          ({ decided } = event);
        }
        break;
      case RoundEventKind.TRACKS:
        tracks = tracks.filter(({ origin }) => origin !== event.origin);
        tracks.push({ origin: event.origin ?? 0, servers: event.servers });
        break;
      case RoundEventKind.RECEIVED:
      case RoundEventKind.SENT:
        used.add(edgeName(edgeOf(event)));
        if (event.target !== undefined && event.origin !== undefined) {
          const told = { owner: event.origin, target: event.target };
          if (!failures.some((f) => f.owner === told.owner && f.target === told.target))
            failures.push(told);
        }
        break;
      case RoundEventKind.SUSPECTED:
        suspected.add(event.origin ?? 0);
        break;
      case RoundEventKind.TRUSTED:
        suspected.delete(event.origin ?? 0);
        break;
    }
  }
  const idle = awaited.includes(recording.node);
  return {
    run,
    idle,
    members: run?.members ?? recording.members.map(({ index }) => index),
    epoch,
    round,
    reliable,
    decided,
    awaited: idle ? [] : awaited,
    suspected: [...suspected].sort((a, b) => a - b),
    failures,
    tracks: tracks.filter(({ origin }) => awaited.includes(origin)),
    used,
  };
}

function runAt(recording: Recording, number: bigint | undefined): RoundRun | undefined {
  return recording.runs.find(({ run }) => run === number) ?? recording.runs.at(-1);
}

/** The edges to draw: those of the digraph, and those of trees that frames took. */
export function edgesOf(
  recording: Recording,
  run: RoundRun | undefined,
): (Edge & { tree: boolean })[] {
  const edges = new Map<string, Edge & { tree: boolean }>();
  for (const { from, to } of run?.edges ?? [])
    edges.set(edgeName({ from, to }), { from, to, tree: false });
  for (const event of recording.events) {
    if (!isFrame(event) || event.run !== run?.run) continue;
    const edge = edgeOf(event);
    if (!edges.has(edgeName(edge))) edges.set(edgeName(edge), { ...edge, tree: true });
  }
  return [...edges.values()];
}

/** A part of the time line in which one round runs, or several of one mode. */
export interface Span {
  run: bigint;
  reliable: boolean;
  first: bigint;
  last: bigint;
  beginUs: number;
  endUs: number;
}

/**
 * Returns the spans of rounds, by time. If there are more than most, neighbours of one mode and run
 * are one span.
 */
export function spansOf(recording: Recording, most: number): Span[] {
  let spans: Span[] = [];
  const end = Number(recording.events.at(-1)?.atUs ?? 0n);
  for (const event of recording.events) {
    if (event.kind !== RoundEventKind.WAITS && event.kind !== RoundEventKind.MODE) continue;
    const last = spans.at(-1);
    const at = Number(event.atUs);
    if (
      last &&
      last.run === event.run &&
      last.first === event.round &&
      last.reliable === event.reliable
    )
      continue;
    if (last) last.endUs = at;
    spans.push({
      run: event.run,
      reliable: event.reliable,
      first: event.round,
      last: event.round,
      beginUs: at,
      endUs: end,
    });
  }
  if (spans.length > most) {
    const merged: Span[] = [];
    for (const span of spans) {
      const last = merged.at(-1);
      if (last && last.run === span.run && last.reliable === span.reliable) {
        last.last = span.last;
        last.endUs = span.endUs;
      } else merged.push({ ...span });
    }
    spans = merged;
  }
  return spans;
}

/** The round of an event as the papers write it. */
export function roundWords(event: RoundEvent): string {
  if (event.round === 0n) return "";
  const both = `${event.epoch},${event.round}`;
  return event.reliable || (event.frame !== "" && event.frame !== "BCAST")
    ? `[[${both}]]`
    : `[${both}]`;
}

/** Seconds since the node began, to the microsecond. */
export function secondsText(us: bigint): string {
  return `${us / 1_000_000n}.${String(us % 1_000_000n).padStart(6, "0")}`;
}

/** Says what happened in an event at a node, self. */
export function describe(
  event: RoundEvent,
  names: ReadonlyMap<number, string>,
  self: number,
): string {
  const name = (index: number | undefined): string =>
    names.get(index ?? 0) ?? `member ${index ?? 0}`;
  const list = (servers: readonly number[]): string => servers.map(name).join(", ");
  const bytes = event.bytes === 1n ? "1 byte" : `${event.bytes} bytes`;
  const frame =
    event.target === undefined
      ? `${event.frame} of ${name(event.origin)}, ${bytes}`
      : `${event.frame} of ${name(event.target)} by ${name(event.origin)}, ${bytes}`;
  switch (event.kind) {
    case RoundEventKind.RUN_BEGUN:
      return `A run begins: ${list(event.servers)}`;
    case RoundEventKind.RUN_ENDED:
      return "The run is over";
    case RoundEventKind.MODE:
      return event.reliable ? "Reliable rounds, over the digraph" : "Unreliable rounds, over trees";
    case RoundEventKind.BROADCAST:
      return `Own message, ${bytes}`;
    case RoundEventKind.RECEIVED:
      return `From ${name(event.from)}: ${frame}`;
    case RoundEventKind.SENT:
      return `To ${name(event.to)}: ${frame}`;
    case RoundEventKind.WAITS:
      return event.servers.length === 0
        ? "Waits for nobody"
        : event.servers.includes(self)
          ? "The round has not begun here"
          : `Waits for ${event.decided ? "votes" : "messages"} of ${list(event.servers)}`;
    case RoundEventKind.TRACKS:
      return `The message of ${name(event.origin)} can be at ${list(event.servers)}`;
    case RoundEventKind.DELIVERED:
      return `Ordered: messages of ${list(event.servers)}, ${bytes}`;
    case RoundEventKind.REMOVED:
      return `Left the group: ${list(event.servers)}`;
    case RoundEventKind.SEALED:
      return `Block ${event.height}`;
    case RoundEventKind.SUSPECTED:
      return `Suspects ${name(event.origin)}`;
    case RoundEventKind.TRUSTED:
      return `Trusts ${name(event.origin)} again`;
    case RoundEventKind.LOST:
      return `${name(event.origin)} is lost to this run`;
    default:
      return "Something that this page does not know";
  }
}

/** The events of a recording, in words. */
export function eventsTable(
  { events, node }: Recording,
  names: ReadonlyMap<number, string>,
): Table {
  return {
    header: ["number", "second", "epoch", "round", "what", "block_time"],
    rows: events.map((event) => [
      event.number,
      secondsText(event.atUs),
      event.epoch,
      event.round,
      describe(event, names, node),
      event.blockTimeMs > 0n ? isoTime(Number(event.blockTimeMs)) : "",
    ]),
  };
}

/** The eons and generations of a recording. */
export function runsTable({ runs }: Recording): Table {
  return {
    header: ["generation", "eon", "first_round", "members", "began_second", "ended_second", "end"],
    rows: runs.map((run) => [
      run.generation,
      run.eon,
      run.firstRound,
      run.members.join(" "),
      secondsText(run.begunUs),
      run.endedUs > 0n ? secondsText(run.endedUs) : "",
      run.end,
    ]),
  };
}
