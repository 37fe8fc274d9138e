// Plays a recording of rounds: live as it comes, or step by step.
import type { Recording } from "../gen/ledgerd/v1/rounds_pb";
import { api, explain } from "./api";
import { edgeOf, isFrame, joined, parseRecording, type Edge } from "./rounds";

/** The most messages that are drawn at a time while the page is live. */
const maxMoving = 80;
/** How long messages move in the live view, in milliseconds. */
const liveMs = 600;

/** The speeds to play at, in events a second. */
export const speeds = [1, 3, 10, 40] as const;

export interface Moving extends Edge {
  origin: number;
  failure: boolean;
}

export class Player {
  recording = $state.raw<Recording>();
  /** Where the recording is from: "" for the node, or a file's name. */
  file = $state("");
  /** The event that is shown; -1 is before the first one. */
  place = $state(-1);
  mode = $state<"still" | "live" | "playing">("still");
  speed = $state<number>(3);
  /** How far the messages have moved, from 0 to 1. */
  progress = $state(0.5);
  moving = $state.raw<readonly Moving[]>([]);
  trouble = $state("");
  /** Messages do not move: the reader wants no motion. */
  calm = $state(false);
  private stream: AbortController | undefined;
  private frame = 0;

  constructor() {
    const asked = matchMedia("(prefers-reduced-motion: reduce)");
    this.calm = asked.matches;
    asked.addEventListener("change", () => {
      this.calm = asked.matches;
      if (this.calm && this.mode === "playing") this.stop();
    });
  }

  /** Loads what the node has already, and shows the event of that number, or the last one. */
  async load(number: bigint | undefined): Promise<void> {
    try {
      const { recording } = await api.getRounds({ last: 16_384 });
      if (this.recording || !recording || recording.events.length === 0) return;
      this.recording = recording;
      const named = recording.events.findIndex((event) => event.number === number);
      this.goTo(named >= 0 ? named : recording.events.length - 1);
    } catch (error) {
      this.trouble = explain(error).message;
    }
  }

  /** Shows events as they come, until stop. */
  async watch(): Promise<void> {
    this.stop();
    const controller = new AbortController();
    this.stream = controller;
    this.mode = "live";
    this.trouble = "";
    let begun = false;
    try {
      for await (const { recording } of api.watchRounds({}, { signal: controller.signal })) {
        if (!recording) continue;
        this.recording = joined(begun ? this.recording : undefined, recording);
        begun = true;
        this.file = "";
        this.place = this.recording.events.length - 1;
        if (recording.events.length > 0) this.showLatest(recording);
      }
      if (!controller.signal.aborted) this.trouble = "The node ended the stream.";
    } catch (error) {
      if (!controller.signal.aborted) this.trouble = explain(error).message;
    }
    if (this.stream === controller) this.stop();
  }

  /** Opens a downloaded recording. */
  open(name: string, text: string): void {
    this.stop();
    try {
      this.recording = parseRecording(text);
      this.file = name;
      this.trouble = "";
      this.goTo(this.recording.events.length > 0 ? 0 : -1);
    } catch (error) {
      this.trouble = (error as Error).message;
    }
  }

  /** Ends what goes on: the stream, or the motion. */
  stop(): void {
    this.stream?.abort();
    this.stream = undefined;
    cancelAnimationFrame(this.frame);
    this.mode = "still";
    this.show(this.place, 0.5);
  }

  step(by: number): void {
    this.stop();
    this.goTo(this.place + by);
  }

  goTo(place: number): void {
    if (this.mode !== "still") this.stop();
    this.show(place, 0.5);
  }

  play(): void {
    this.stop();
    const { recording } = this;
    if (!recording || recording.events.length === 0 || this.calm) return;
    if (this.place >= recording.events.length - 1) this.show(-1, 0.5);
    this.mode = "playing";
    let last = performance.now();
    let passed = 1; // of the event; the next one begins at once
    const next = (now: number): void => {
      passed += (Math.min(now - last, 250) / 1000) * this.speed;
      last = now;
      const events = Math.floor(passed);
      passed -= events;
      const place = Math.min(this.place + events, recording.events.length - 1);
      this.show(place, passed);
      if (place === recording.events.length - 1 && events > 0) this.stop();
      else this.frame = requestAnimationFrame(next);
    };
    this.frame = requestAnimationFrame(next);
  }

  private show(place: number, progress: number): void {
    const events = this.recording?.events ?? [];
    this.place = Math.max(-1, Math.min(place, events.length - 1));
    const event = events[this.place];
    this.progress = progress;
    this.moving =
      event && isFrame(event)
        ? [
            {
              ...edgeOf(event),
              origin: event.origin ?? 0,
              failure: event.target !== undefined,
            },
          ]
        : [];
  }

  /** Moves the frames of the last round that came. */
  private showLatest(recording: Recording): void {
    const frames = recording.events.filter(isFrame);
    const round = frames.at(-1)?.round;
    this.moving = frames
      .filter((event) => event.round === round || event.target !== undefined)
      .slice(-maxMoving)
      .map((event) => ({
        ...edgeOf(event),
        origin: event.origin ?? 0,
        failure: event.target !== undefined,
      }));
    cancelAnimationFrame(this.frame);
    if (this.calm) {
      this.progress = 0.5;
      return;
    }
    const begun = performance.now();
    const move = (now: number): void => {
      this.progress = Math.min(1, Math.max(0, (now - begun) / liveMs));
      if (this.mode === "live" && this.progress < 1) this.frame = requestAnimationFrame(move);
    };
    this.frame = requestAnimationFrame(move);
  }
}
