// Loads undici on first use, which takes 100 ms of processor time: a platform without webhooks and load-balancing
// endpoints never needs it. Makes undici, and Node's `fetch`, skip a `100 Continue` that nobody asked for, as HTTP demands (RFC
// 9110, 15.2): undici takes it for a broken connection. Node's own HTTP client needs no help.

import { subscribe } from 'node:diagnostics_channel';
import { createRequire } from 'node:module';
import type { Socket } from 'node:net';
import type { Agent, Dispatcher } from 'undici';

/** Time to connect to a proxy, and from it to the target, ms. */
const CONNECT_MS = 10_000;

const load = createRequire(import.meta.url);

export function loadUndici(): typeof import('undici') {
  skipUnaskedContinue();
  return load('undici');
}

/** Connections through a proxy. */
export function openProxy(proxy: URL, options: Agent.Options = {}): Dispatcher {
  const { Pool, ProxyAgent } = loadUndici();
  return new ProxyAgent({
    ...options,
    uri: proxy.href,
    // Many proxies allow tunnels only to port 443.
    proxyTunnel: false,
    clientFactory: (origin, settings) =>
      new Pool(origin, { ...settings, headersTimeout: CONNECT_MS }),
  });
}

const HEAD_END = '\r\n\r\n';
/** A longer head is left to undici, which has a limit of its own. */
const MAX_HEAD_BYTES = 16_384;

const filters = new WeakMap<Socket, ContinueFilter>();
let isOn = false;

/** Applies to all later requests of this thread. */
export function skipUnaskedContinue(): void {
  if (isOn) return;
  isOn = true;
  // Undici sends one request at a time on a connection, so an answer begins after each.
  subscribe('undici:client:sendHeaders', (message) => {
    if (!hasSocket(message)) return;
    const { socket } = message;
    const filter = filters.get(socket) ?? new ContinueFilter(socket);
    filters.set(socket, filter);
    filter.awaitAnswer();
  });
}

function hasSocket(message: unknown): message is { socket: Socket } {
  return typeof message === 'object' && message !== null && 'socket' in message;
}

/** Undici reads a connection with `socket.read()`. */
class ContinueFilter {
  #isAwaiting = false;
  #held: Buffer | undefined;

  constructor(socket: Socket) {
    const read = socket.read.bind(socket);
    socket.read = (size?: number) => {
      if (!this.#isAwaiting) return read(size);
      for (;;) {
        const piece: Buffer | null = read(size);
        if (piece === null) return null;
        const rest = this.#skip(piece);
        if (rest) return rest;
      }
    };
  }

  awaitAnswer(): void {
    this.#isAwaiting = true;
  }

  /** Returns the bytes that undici may see; undefined if more must arrive first. */
  #skip(piece: Buffer): Buffer | undefined {
    const passed: Buffer[] = [];
    let rest = this.#held ? Buffer.concat([this.#held, piece]) : piece;
    this.#held = undefined;
    while (mayBeInterim(rest)) {
      const end = rest.indexOf(HEAD_END);
      if (end < 0 && rest.length <= MAX_HEAD_BYTES) {
        this.#held = rest;
        return passed.length > 0 ? Buffer.concat(passed) : undefined;
      }
      if (end < 0) break;
      const bytes = end + HEAD_END.length;
      if (!isContinue(rest)) passed.push(rest.subarray(0, bytes));
      rest = rest.subarray(bytes);
    }
    this.#isAwaiting = false;
    return passed.length > 0 ? Buffer.concat([...passed, rest]) : rest;
  }
}

/** The bytes are the start of an interim answer other than 101, or may become one. */
function mayBeInterim(bytes: Buffer): boolean {
  const start = bytes.toString('latin1', 0, 12);
  if (start.length < 12) return 'HTTP/1.1 1'.startsWith(start.slice(0, 10));
  return /^HTTP\/1\.1 1(?!01)/.test(start);
}

function isContinue(bytes: Buffer): boolean {
  return bytes.toString('latin1', 9, 12) === '100';
}
