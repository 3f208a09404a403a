// One connection of the fuzzer: sends exact bytes and parses the answers by hand, because Node's
// clients cannot send such requests.
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

export interface WireAnswer {
  status: number;
  headers: Headers;
  body: Buffer;
}

/** Bytes to send, or ms to wait before the next of them. */
export type Piece = Buffer | number;

export interface Sending {
  pieces: readonly Piece[];
  /** Methods of the requests, in order: an answer to HEAD has no body. */
  methods: readonly string[];
  /** After the last piece. */
  patienceMs: number;
  /** Resets the connection after the last piece. */
  hangsUp: boolean;
}

export interface Exchange {
  answers: WireAnswer[];
  /**
   * `answered`: all expected answers arrived. `abandoned`: the time limit passed, or the client
   * disconnected.
   */
  end: 'answered' | 'closed' | 'abandoned';
  /** Time from the last piece to the first complete answer, or to the end, ms. */
  ms: number;
}

/** Rejects only if nothing listens. */
export async function exchange(
  port: number,
  { hangsUp, methods, patienceMs, pieces }: Sending,
): Promise<Exchange> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true });
  const received: Buffer[] = [];
  let answers: WireAnswer[] = [];
  let sentAt = performance.now();
  let firstAt: number | undefined;
  const over = Promise.withResolvers<Exchange['end']>();
  const connected = Promise.withResolvers<void>();
  const read = (isClosed: boolean) => {
    answers = readAnswers(Buffer.concat(received), { methods, isClosed });
    if (answers.length > 0) firstAt ??= performance.now();
    if (answers.length >= methods.length) over.resolve('answered');
  };
  socket.on('connect', () => connected.resolve());
  socket.on('error', (error) => {
    if (socket.connecting) connected.reject(error);
  });
  socket.on('data', (bytes: Buffer) => {
    received.push(bytes);
    read(false);
  });
  socket.on('close', () => {
    read(true);
    over.resolve('closed');
  });
  await connected.promise;
  for (const piece of pieces) {
    if (typeof piece === 'number') await sleep(piece);
    else if (socket.writable) await send(socket, piece, over.promise);
  }
  sentAt = performance.now();
  if (hangsUp) socket.resetAndDestroy();
  const timer = setTimeout(() => over.resolve('abandoned'), hangsUp ? 0 : patienceMs);
  const end = await over.promise;
  clearTimeout(timer);
  socket.destroy();
  return { answers, end, ms: Math.max(0, (firstAt ?? performance.now()) - sentAt) };
}

/** Also resolves if the other side reads no more. */
function send(
  socket: ReturnType<typeof connect>,
  piece: Buffer,
  over: Promise<unknown>,
): Promise<unknown> {
  const sent = new Promise<void>((resolve) => {
    socket.write(piece, () => resolve());
  });
  return Promise.race([sent, over]);
}

interface Reading {
  methods: readonly string[];
  isClosed: boolean;
}

/** Parses the complete answers, without informational ones. @throws Error if they are not HTTP */
export function readAnswers(bytes: Buffer, { isClosed, methods }: Reading): WireAnswer[] {
  const answers: WireAnswer[] = [];
  let at = 0;
  while (at < bytes.length && answers.length < methods.length) {
    const headEnd = bytes.indexOf('\r\n\r\n', at);
    if (headEnd < 0) break;
    const { headers, status } = readHead(bytes.toString('latin1', at, headEnd));
    const bodyAt = headEnd + 4;
    const isBare =
      status < 200 || status === 204 || status === 304 || methods[answers.length] === 'HEAD';
    const found = isBare
      ? { body: Buffer.alloc(0), end: bodyAt }
      : readBody(bytes, bodyAt, { headers, isClosed });
    if (!found) break;
    at = found.end;
    if (status >= 200) answers.push({ status, headers, body: found.body });
  }
  return answers;
}

function readHead(head: string): { status: number; headers: Headers } {
  const [first = '', ...lines] = head.split('\r\n');
  const status = /^HTTP\/1\.[01] (\d{3})( |$)/.exec(first)?.[1];
  if (status === undefined) throw new Error(`no status line of HTTP: ${JSON.stringify(first)}`);
  const headers = new Headers();
  for (const line of lines) {
    const colon = line.indexOf(':');
    headers.append(line.slice(0, colon), line.slice(colon + 1).trim());
  }
  return { status: Number(status), headers };
}

interface FoundBody {
  body: Buffer;
  /** Position of the next answer. */
  end: number;
}

/** Undefined if the answer is incomplete. */
function readBody(
  bytes: Buffer,
  at: number,
  { headers, isClosed }: { headers: Headers; isClosed: boolean },
): FoundBody | undefined {
  if (headers.get('transfer-encoding') === 'chunked') return readChunks(bytes, at);
  const length = headers.get('content-length');
  if (length !== null) {
    const end = at + Number(length);
    return end <= bytes.length ? { body: bytes.subarray(at, end), end } : undefined;
  }
  return isClosed ? { body: bytes.subarray(at), end: bytes.length } : undefined;
}

function readChunks(bytes: Buffer, from: number): FoundBody | undefined {
  const chunks: Buffer[] = [];
  let at = from;
  for (;;) {
    const lineEnd = bytes.indexOf('\r\n', at);
    if (lineEnd < 0) return undefined;
    const size = Number.parseInt(bytes.toString('latin1', at, lineEnd), 16);
    const dataAt = lineEnd + 2;
    if (size === 0) {
      const end = bytes.indexOf('\r\n', dataAt);
      if (end < 0) return undefined;
      // Skips trailers; the next answer begins after them.
      const after = end === dataAt ? end + 2 : bytes.indexOf('\r\n\r\n', dataAt) + 4;
      return { body: Buffer.concat(chunks), end: after };
    }
    if (dataAt + size + 2 > bytes.length) return undefined;
    chunks.push(bytes.subarray(dataAt, dataAt + size));
    at = dataAt + size + 2;
  }
}
