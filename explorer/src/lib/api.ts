// The node's API, on the origin that served this page.
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { LedgerService } from "../gen/ledgerd/v1/ledgerd_pb";

/** A call that takes longer than this has failed. Streams have no such limit. */
export const callTimeoutMs = 10_000;

export const api = createClient(
  LedgerService,
  createConnectTransport({ baseUrl: location.origin, useBinaryFormat: true }),
);

export { explain, type Problem } from "./problem";
