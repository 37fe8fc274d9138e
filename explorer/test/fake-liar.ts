// A node that lies: it passes calls on to another one, and changes what it answers.
import { createClient, type ConnectRouter, type ServiceImpl } from "@connectrpc/connect";
import { connectNodeAdapter, createConnectTransport } from "@connectrpc/connect-node";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { LedgerService } from "../src/gen/ledgerd/v1/ledgerd_pb";
import { allowOrigin } from "./fake-pages";

/**
 * balance: it shows another balance than it proves. proof: it changes that in the proof, too.
 * header: it changes a header. stale: it answers as it did when it was started.
 */
export type Lie = "balance" | "proof" | "header" | "stale";

export class FakeLiar {
  url = "";
  private constructor(private readonly server: Server) {}

  /** A stale node remembers what one account had. */
  static async start(
    truth: string,
    lie: Lie,
    account = "northbank:settlement",
  ): Promise<FakeLiar> {
    const node = createClient(
      LedgerService,
      createConnectTransport({ baseUrl: truth, httpVersion: "1.1", useBinaryFormat: true }),
    );
    const before = new Map<string, unknown>();
    /** Passes a call on, and changes the answer. A stale node keeps its first answer. */
    const told = <Asked, Answer>(
      name: string,
      call: (asked: Asked) => Promise<Answer>,
      change: (answer: Answer) => void = () => undefined,
    ): ((asked: Asked) => Promise<Answer>) => {
      return async (asked) => {
        if (lie === "stale" && before.has(name)) return before.get(name) as Answer;
        const answer = await call(asked);
        before.set(name, answer);
        change(answer);
        return answer;
      };
    };
    const methods: Partial<ServiceImpl<typeof LedgerService>> = {
      getGenesis: (asked) => node.getGenesis(asked),
      getNode: (asked) => node.getNode(asked),
      getCertificate: told("certificate", node.getCertificate),
      getBlock: told("block", node.getBlock, ({ block }) => {
        const canonical = block?.header?.canonical;
        // A byte of the state digest.
        if (lie === "header" && canonical) canonical[170] = (canonical[170] ?? 0) ^ 1;
      }),
      getAccount: told("account", node.getAccount, ({ account }) => {
        const balance = account?.balances[0];
        if ((lie === "balance" || lie === "proof") && balance)
          balance.amount = String(BigInt(balance.amount) + 1_000_000n);
      }),
      getAccountProof: told("proof", node.getAccountProof, ({ encoded }) => {
        // The last byte of the entry: of a balance, or of what is set aside.
        if (lie === "proof") encoded[encoded.length - 33] = (encoded.at(-33) ?? 0) ^ 1;
      }),
    };
    const serve = connectNodeAdapter({
      routes: (router: ConnectRouter) => router.service(LedgerService, methods),
    });
    const server = createServer((request, response) => {
      if (!allowOrigin(request, response)) serve(request, response);
    });
    await new Promise<void>((resolve, reject) =>
      server.once("error", reject).listen(0, "127.0.0.1", resolve),
    );
    const liar = new FakeLiar(server);
    liar.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    if (lie === "stale") {
      await node.getCertificate({ height: 0n }).then((answer) => before.set("certificate", answer));
      const height = before.get("certificate") as { certificate?: { height: bigint } };
      const value = height.certificate?.height ?? 0n;
      before.set("block", await node.getBlock({ block: { case: "height", value } }));
      before.set("account", await node.getAccount({ account }));
      before.set("proof", await node.getAccountProof({ account }));
    }
    return liar;
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise<void>((resolve) => this.server.close(() => resolve()));
  }
}
