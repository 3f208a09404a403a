// Encodes a request of the fuzzer as bytes: framed correctly, or with wrong lengths and chunks.
import type { Dice } from './dice.ts';
import type { Header } from './heads.ts';
import type { Piece } from './wire.ts';

export const PARTS = ['path', 'query', 'headers', 'body', 'method', 'framing'] as const;
export type Part = (typeof PARTS)[number];

/** Bytes to send, with facts about them. */
export interface FuzzRequest {
  /** Name of the operation, `POST /v2/pods`; for other bytes, a description. */
  route: string;
  bent: ReadonlySet<Part>;
  method: string;
  target: string;
  pieces: Piece[];
  /** Methods of all requests on the connection that need an answer. */
  methods: string[];
  mayWait: boolean;
  /** The platform need not answer it. */
  maySilence: boolean;
  hangsUp: boolean;
  /** Query and body, if only these two were changed. */
  asked?: Asked;
}

/** Query and body as sent. */
export interface Asked {
  query: readonly Header[];
  body: Buffer | undefined;
}

export interface Draft {
  method: string;
  path: string;
  query: Header[];
  headers: Header[];
  body: Buffer | undefined;
}

/** A second request after the first. */
const PROBE = Buffer.from('GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');

export interface Framing {
  draft: Draft;
  route: string;
  bent: Set<Part>;
  mayWait: boolean;
}

export function frame(dice: Dice, { bent, draft, mayWait, route }: Framing): FuzzRequest {
  const { body, headers, method, path } = draft;
  const query = draft.query.map(([name, value]) => `${name}=${value}`).join('&');
  const target = query === '' ? path : `${path}?${query}`;
  const request = { route, bent, method, target, mayWait, maySilence: false, hangsUp: false };
  const head = (more: readonly Header[]) =>
    Buffer.from(
      [
        `${method} ${target} HTTP/1.1`,
        ...[...headers, ...more].map(([name, value]) => `${name}: ${value}`),
        '\r\n',
      ].join('\r\n'),
    );
  if (bent.has('framing'))
    return { ...request, ...misframe(dice, { body: body ?? Buffer.from('{}'), head, method }) };
  // Followed by another request: the platform must not confuse the two.
  const isFollowed = !bent.has('headers') && !mayWait && dice.chance(0.25);
  const length: Header[] = body ? [['Content-Length', String(body.length)]] : [];
  const more: Header[] = isFollowed ? length : [...length, ['Connection', 'close']];
  const pieces = [Buffer.concat([head(more), body ?? Buffer.alloc(0)])];
  const isJudgeable = !bent.has('path') && !bent.has('headers') && !bent.has('method');
  return {
    ...request,
    ...(isJudgeable && { asked: { query: draft.query, body } }),
    maySilence: body !== undefined && isAnsweredEarly(method),
    pieces: isFollowed ? [...pieces, PROBE] : pieces,
    methods: isFollowed ? [method, 'GET'] : [method],
  };
}

type Misframed = Pick<FuzzRequest, 'pieces' | 'methods' | 'maySilence' | 'hangsUp'>;

/** An unread body may still be in transit when the connection ends, and resets it. */
function isAnsweredEarly(method: string): boolean {
  return method === 'GET' || method === 'HEAD' || method === 'OPTIONS';
}

interface Unframed {
  method: string;
  body: Buffer;
  head: (more: readonly Header[]) => Buffer;
}

/** Wrong lengths, all kinds of chunks, incomplete bodies. */
function misframe(dice: Dice, { body, head, method }: Unframed): Misframed {
  const close: Header = ['Connection', 'close'];
  const chunked: Header = ['Transfer-Encoding', 'chunked'];
  const half = Math.floor(body.length / 2);
  const chunk = (bytes: Buffer, extension = '') =>
    Buffer.concat([Buffer.from(`${bytes.length.toString(16)}${extension}\r\n`), bytes, CRLF]);
  const answered = { methods: [method], maySilence: isAnsweredEarly(method), hangsUp: false };
  const unanswered = { ...answered, maySilence: true };
  const length = (text: string): Misframed => ({
    ...unanswered,
    pieces: [head([['Content-Length', text], close]), body],
  });
  return dice.pick<() => Misframed>([
    // Complete, but unusual.
    () => ({
      ...answered,
      pieces: [
        head([chunked, ['Trailer', 'X-End'], close]),
        ...[body.subarray(0, half), body.subarray(half)]
          .filter((bytes) => bytes.length > 0)
          .map((bytes) => chunk(bytes, ';name="a;b"')),
        Buffer.from('0\r\nX-End: 1\r\nContent-Length: 7\r\n\r\n'),
      ],
    }),
    () => ({
      ...answered,
      pieces: [
        head([['Content-Length', String(body.length)], close]),
        ...[body.subarray(0, half), 5, body.subarray(half)],
      ],
    }),
    () => ({
      ...answered,
      pieces: [head([chunked, close]), chunk(body), Buffer.from('0\r\n\r\n')],
    }),
    // Incomplete: the client then disconnects.
    () => ({
      ...unanswered,
      hangsUp: true,
      pieces: [head([['Content-Length', String(body.length + 50)]]), body, 5],
    }),
    () => ({ ...unanswered, hangsUp: true, pieces: [head([chunked]), chunk(body), 5] }),
    () => ({
      ...unanswered,
      hangsUp: true,
      pieces: [head([chunked]), Buffer.from('fffff\r\n{'), 2],
    }),
    // Invalid lengths.
    () => length('-1'),
    () => length('+2'),
    () => length('0x10'),
    () => length('1e2'),
    () => length('99999999999999999999'),
    () => length(`${body.length}, ${body.length}`),
    () => length('abc'),
    () => length(String(half)),
    () => ({
      ...unanswered,
      pieces: [head([['Content-Length', '3'], ['Content-Length', '5'], close]), body],
    }),
    () => ({
      ...unanswered,
      pieces: [head([['Content-Length', '3'], chunked, close]), chunk(body)],
    }),
    () => ({
      ...unanswered,
      pieces: [head([['Transfer-Encoding', dice.pick(CODINGS)], close]), chunk(body)],
    }),
    () => ({
      ...unanswered,
      pieces: [head([chunked, close]), Buffer.from('zz\r\n{}\r\n0\r\n\r\n')],
    }),
    () => ({
      ...unanswered,
      pieces: [head([chunked, close]), Buffer.from(`2;${'x'.repeat(20_000)}\r\n{}\r\n0\r\n\r\n`)],
    }),
  ])();
}

const CRLF = Buffer.from('\r\n');
const CODINGS: readonly [string, ...string[]] = [
  'gzip, chunked',
  'chunked, gzip',
  'identity',
  'Chunked ',
  'xchunked',
  '',
];
