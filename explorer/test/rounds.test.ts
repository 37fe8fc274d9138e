import { expect, test } from "vitest";
import { RoundEventKind, type RoundEvent } from "../src/gen/ledgerd/v1/rounds_pb";
import {
  describe as words,
  edgesOf,
  joined,
  maxEvents,
  namesOf,
  parseRecording,
  recordingText,
  roundWords,
  sceneAt,
  secondsText,
  spansOf,
} from "../src/lib/rounds";
import { fakeRecording } from "./fake-rounds";

const recording = fakeRecording((index) => (index === 2 ? "" : `node-${index}`));
const find = (holds: (event: RoundEvent) => boolean): number => recording.events.findIndex(holds);

test("a recording is the same after it was a file", () => {
  const text = recordingText(recording);
  expect(text).toContain('"begun_ms":"1790000000000"');
  expect(text).toContain('"from":0');
  expect(parseRecording(text)).toEqual(recording);
  // The API's own spelling is taken too.
  expect(parseRecording(text.replace("begun_ms", "begunMs"))).toEqual(recording);
});

test("other files are refused, and the reason names what is wrong", () => {
  expect(() => parseRecording("{")).toThrow(/no recording/);
  expect(() => parseRecording('{"format":1,"colour":2}')).toThrow(/colour/);
  expect(() => parseRecording('{"format":3}')).toThrow(/format 3/);
  expect(() => parseRecording("{}")).toThrow(/format 0/);
});

test("the scene says whom the round waits for at each event", () => {
  expect(sceneAt(recording, -1).awaited).toEqual([]);
  const began = find((e) => e.kind === RoundEventKind.WAITS);
  expect(sceneAt(recording, began)).toMatchObject({
    epoch: 1n,
    round: 7n,
    reliable: false,
    awaited: [1, 2, 3, 4],
  });
  expect([...sceneAt(recording, began).used].sort()).toEqual(["0-1", "0-2", "0-4"]);
  expect(sceneAt(recording, began + 4).awaited).toEqual([3, 4]);
  // A round that the node has sent nothing in has not begun there.
  const waits = recording.events[began];
  if (waits) waits.servers = [0, 1, 2, 3, 4];
  expect(sceneAt(recording, began)).toMatchObject({ idle: true, awaited: [] });
  expect(words(waits as RoundEvent, namesOf(recording), 0)).toBe("The round has not begun here");
  if (waits) waits.servers = [1, 2, 3, 4];
  // The next round has used no edge yet.
  const next = find((e) => e.kind === RoundEventKind.BROADCAST && e.round === 8n);
  expect(sceneAt(recording, next).used.size).toBe(0);
  const tracks = find((e) => e.kind === RoundEventKind.TRACKS);
  expect(sceneAt(recording, tracks)).toMatchObject({
    reliable: true,
    suspected: [4],
    failures: [{ owner: 0, target: 4 }],
    tracks: [{ origin: 4, servers: [1, 3] }],
  });
  const end = sceneAt(recording, recording.events.length - 1);
  expect(end).toMatchObject({ awaited: [], tracks: [] });
  expect(end.failures).toContainEqual({ owner: 3, target: 4 });
  expect(end.run?.generation).toBe(1n);
});

test("edges of trees are apart from those of the digraph", () => {
  const edges = edgesOf(recording, recording.runs[1]);
  expect(edges.filter(({ tree }) => !tree)).toHaveLength(15);
  expect(
    edges
      .filter(({ tree }) => tree)
      .map(({ from, to }) => `${from}-${to}`)
      .sort(),
  ).toEqual(["0-4", "1-0"]);
});

test("a time line has each round, or stretches of one mode if there are many", () => {
  const spans = spansOf(recording, 100);
  expect(spans.map(({ first, reliable }) => [first, reliable])).toEqual([
    [7n, false],
    [8n, false],
    [9n, false],
    [10n, true],
  ]);
  for (const [i, span] of spans.entries()) {
    expect(span.endUs).toBeGreaterThan(span.beginUs);
    if (i > 0) expect(span.beginUs).toBe(spans[i - 1]?.endUs);
  }
  expect(spansOf(recording, 3).map(({ first, last }) => [first, last])).toEqual([
    [7n, 9n],
    [10n, 10n],
  ]);
});

test("a stream's messages join, and the oldest events go", () => {
  const first = { ...recording, events: [] };
  let all = joined(undefined, first);
  for (let i = 0; i < recording.events.length; i += 7)
    all = joined(all, {
      ...recording,
      runs: [],
      members: [],
      events: recording.events.slice(i, i + 7),
      dropped: 2n,
    });
  expect(all.events).toEqual(recording.events);
  expect(all.runs).toHaveLength(2);
  expect(all.dropped).toBe(2n * BigInt(Math.ceil(recording.events.length / 7)));
  for (let i = 0; i < 400; i++) all = joined(all, recording);
  expect(all.events).toHaveLength(maxEvents);
});

test("events are in words", () => {
  const names = namesOf(recording);
  const text = recording.events.map((e) => `${roundWords(e)} ${words(e, names, 0)}`);
  for (const wanted of [
    "[1,7] Own message, 180 bytes",
    "[1,7] To node-1: BCAST of node-0, 212 bytes",
    "[1,7] Waits for messages of node-1, member 2, node-3, node-4",
    "[1,7] Ordered: messages of node-0, node-1, member 2, node-3, node-4, 200 bytes",
    " To node-1: FAIL of node-4 by node-0, 24 bytes",
    "[[2,10]] Reliable rounds, over the digraph",
    "[[2,10]] The message of node-4 can be at node-1, node-3",
    "[[2,10]] Waits for nobody",
    "[2,10] Left the group: node-4",
    "[5,7] Block 40",
  ])
    expect(text).toContain(wanted);
  expect(secondsText(12_000_140n)).toBe("12.000140");
});
