// What went wrong with a call, for the reader of a page.
import { Code, ConnectError } from "@connectrpc/connect";

export interface Problem {
  /** unreachable: the node does not answer. unanswered: the node answers, but a shard does not. */
  kind: "missing" | "invalid" | "unreachable" | "unanswered" | "refused";
  message: string;
}

/** Describes what went wrong, for the reader of a page. */
export function explain(error: unknown): Problem {
  const failure = ConnectError.from(error);
  switch (failure.code) {
    case Code.NotFound:
      return { kind: "missing", message: sentence(failure.rawMessage) };
    case Code.InvalidArgument:
    case Code.OutOfRange:
      return { kind: "invalid", message: sentence(failure.rawMessage) };
    case Code.Unavailable:
      // The node does answer, and reports that a shard of the book does not.
      if (failure.cause === undefined && /\bshards?\b/.test(failure.rawMessage))
        return { kind: "unanswered", message: sentence(failure.rawMessage) };
      return { kind: "unreachable", message: "The node does not answer." };
    case Code.DeadlineExceeded:
    case Code.Unknown:
    case Code.Aborted:
    case Code.Canceled:
      return { kind: "unreachable", message: "The node does not answer." };
    default:
      return { kind: "refused", message: sentence(failure.rawMessage) };
  }
}

function sentence(text: string): string {
  const trimmed = text.trim();
  if (trimmed === "") return "The node gave no reason.";
  const first = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}
