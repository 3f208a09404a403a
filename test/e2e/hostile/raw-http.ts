// HTTP requests as an attacker sends them: any bytes, never finished, never read, many at a time.

import { connect, type Socket } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import type { Target } from './attack.ts';

export interface RawAnswer {
  /** The status, or `closed` if the connection ended without one. */
  answer: string;
  bytes: number;
}

export interface RawRequest {
  method?: string;
  path: string;
  /** Beside Host; each a whole line. */
  headers?: readonly string[];
  /** Default: the attacker's. Null: none. */
  key?: string | null;
  body?: Uint8Array;
  /** Of the body; for one that is not sent to its end. Default: that of `body`. */
  announcedBytes?: number;
  /** Default: true. */
  isRead?: boolean;
  /** Instead of a whole head: how one begins. */
  headStart?: string;
}

const HEAD_END = '\r\n\r\n';
const MAX_HEAD_LENGTH = 65_536;

/** One request on a connection of its own. */
export class RawExchange {
  readonly socket: Socket;
  /** Resolves when the answer was read whole, or the connection ended. */
  readonly answered: Promise<RawAnswer>;
  #head = '';
  #bytes = 0;
  #isClosed = false;

  constructor(target: Target, { headStart, isRead = true, ...request }: RawRequest) {
    const { hostname, port } = new URL(target.url);
    this.socket = connect(Number(port), hostname);
    this.answered = new Promise((resolve) => {
      const finish = () => resolve({ answer: this.state, bytes: this.#bytes });
      this.socket.on('error', () => {});
      this.socket.once('close', () => {
        this.#isClosed = true;
        finish();
      });
      // A body that the platform does not want breaks the pipe; the answer may be there all the same.
      if (!isRead) return;
      this.socket.on('data', (piece: Buffer) => {
        this.#bytes += piece.length;
        if (!this.#head.includes(HEAD_END) && this.#head.length < MAX_HEAD_LENGTH) {
          this.#head += piece.toString('latin1');
        }
        if (this.#isWhole()) {
          finish();
          this.socket.destroy();
        }
      });
    });
    if (!isRead) this.socket.pause();
    this.socket.write(headStart ?? composeHead(target, request));
    if (request.body) this.socket.write(request.body);
  }

  /** The status; without one yet `open` or `closed`. */
  get state(): string {
    const status = /^HTTP\/1\.1 (\d{3})/.exec(this.#head)?.[1];
    return status ?? (this.#isClosed ? 'closed' : 'open');
  }

  /** Of the answer, so far. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Ends it, whatever was answered. */
  close(): void {
    this.socket.destroy();
  }

  #isWhole(): boolean {
    const end = this.#head.indexOf(HEAD_END);
    if (end < 0) return false;
    const length = /\r\ncontent-length: (\d+)/i.exec(this.#head)?.[1];
    return length !== undefined && this.#bytes >= end + HEAD_END.length + Number(length);
  }
}

/** Resolves when each has a status or is closed, or all that is wanted, after 30 s at the latest. */
export async function settle(
  exchanges: readonly RawExchange[],
  isSettled = ({ state }: RawExchange) => state !== 'open',
): Promise<void> {
  for (let polls = 0; polls < 600; polls++) {
    if (exchanges.every(isSettled)) return;
    await setTimeout(50);
  }
}

export function composeHead(
  target: Target,
  request: Omit<RawRequest, 'isRead' | 'headStart'>,
): string {
  const { announcedBytes, body, headers = [], key = target.key, method, path } = request;
  const length = announcedBytes ?? body?.length;
  const lines = [
    `${method ?? (length === undefined ? 'GET' : 'POST')} ${path} HTTP/1.1`,
    'Host: 127.0.0.1',
    ...(key === null ? [] : [`Authorization: Bearer ${key}`]),
    ...(length === undefined ? [] : [`Content-Length: ${length}`]),
    ...headers,
  ];
  return `${lines.join('\r\n')}${HEAD_END}`;
}

export const JSON_TYPE = 'Content-Type: application/json';

/** `act` for each number below `count`, so many at a time. */
export async function inTurns(
  { count, width }: { count: number; width: number },
  act: (n: number) => Promise<void>,
): Promise<void> {
  let next = 0;
  const lane = async () => {
    while (next < count) await act(next++);
  };
  await Promise.all(Array.from({ length: Math.min(width, count) }, lane));
}

/** A call that has to succeed, to prepare an attack. @returns the answer's JSON */
export async function callOwn(
  { key, url }: Target,
  path: string,
  body?: object,
): Promise<Record<string, unknown>> {
  const response = await fetch(`${url}${path}`, {
    headers: { authorization: key, 'content-type': 'application/json' },
    ...(body && { method: 'POST', body: JSON.stringify(body) }),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${path}: ${response.status} ${text.slice(0, 500)}`);
  return text === '' ? {} : JSON.parse(text);
}
