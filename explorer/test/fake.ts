// `npm run fake` runs the fake node until Ctrl-C, on port 8080 or on the given port.
import { FakeNode } from "./fake-node";

const node = await FakeNode.start({
  port: Number(process.argv[2] ?? 8080),
  everyMs: 700,
  servers: Number(process.argv[3] ?? 8),
  suspected: [5],
  unreachable: [6],
});
console.log(`explorer over a made-up chain: ${node.url}`);
