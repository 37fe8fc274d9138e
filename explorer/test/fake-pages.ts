// How fake nodes serve the built explorer, and let pages of other origins call.
import { readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { extname, join, normalize } from "node:path";

const types: Readonly<{ [extension: string]: string }> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
};

/** Lets a page of another origin call. Returns whether that is all that was asked. */
export function allowOrigin(request: IncomingMessage, response: ServerResponse): boolean {
  response.setHeader("access-control-allow-origin", request.headers.origin ?? "*");
  if (request.method !== "OPTIONS") return false;
  response.setHeader("access-control-allow-methods", "GET, POST");
  response.setHeader(
    "access-control-allow-headers",
    "content-type, connect-protocol-version, connect-timeout-ms",
  );
  response.writeHead(204).end();
  return true;
}

export function serveFile(url: string, response: ServerResponse): void {
  const { pathname } = new URL(url, "http://localhost");
  const name = extname(pathname) in types ? normalize(pathname) : "/index.html";
  try {
    response
      .writeHead(200, { "content-type": types[extname(name)] ?? "text/plain" })
      .end(readFileSync(join("dist", name)));
  } catch {
    response.writeHead(404).end();
  }
}
