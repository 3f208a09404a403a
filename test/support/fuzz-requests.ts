// One request of the fuzzer: an operation called rightly, then bent in some places; or bytes that are no
// request at all.
import type { Dice } from './fuzz-dice.ts';
import type { Call, FuzzedOperation, Ground } from './fuzz-operations.ts';
import { type Allowance, tame } from './fuzz-safety.ts';
import { bendBytes, bendValue, STRANGE_TEXTS } from './fuzz-values.ts';
import type { Piece } from './fuzz-wire.ts';

export const PARTS = ['path', 'query', 'headers', 'body', 'method', 'framing'] as const;
export type Part = (typeof PARTS)[number];

type Header = [name: string, value: string];

/** What goes out, and what is known of it. */
export interface FuzzRequest {
  /** As the operations have it: `POST /v2/pods`; of no request: what it is. */
  route: string;
  bent: ReadonlySet<Part>;
  method: string;
  target: string;
  pieces: Piece[];
  /** Of all that is to be answered on the connection. */
  methods: string[];
  mayWait: boolean;
  /** Nobody has to answer it. */
  maySilence: boolean;
  hangsUp: boolean;
}

export interface RequestOptions {
  operation: FuzzedOperation;
  /** The operation's, with what is named instead of its parameters. */
  path: string;
  authorization: string | undefined;
  ground: Ground;
  allowance: Allowance;
}

interface Draft {
  method: string;
  path: string;
  query: Header[];
  headers: Header[];
  body: Buffer | undefined;
}

const PROBE = Buffer.from('GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');

export function composeRequest(dice: Dice, options: RequestOptions): FuzzRequest {
  const { authorization, ground, operation, path } = options;
  const route = `${operation.method} ${operation.path}`;
  const call = operation.compose(dice, ground);
  const bent = chooseParts(dice, call.json === undefined ? 30 : 90);
  const headers: Header[] = [['Host', 'localhost']];
  if (authorization !== undefined) headers.push(['Authorization', authorization]);
  for (const [name, value] of call.headers ?? []) headers.push([name, value]);
  const { body, mediaType } = composeBody(dice, { call, route, bent, options });
  if (body) headers.push(['Content-Type', mediaType]);
  const query = [...(call.query ?? [])].map(([name, value]): Header => [name, value]);
  const draft = { method: operation.method, path, query, headers, body };
  if (bent.has('path')) draft.path = bendPath(dice, draft.path);
  if (bent.has('query')) draft.query = bendQuery(dice, draft.query);
  if (bent.has('headers')) draft.headers = bendHeaders(dice, draft.headers);
  if (bent.has('method')) draft.method = dice.pick(METHODS);
  return frame(dice, { draft, route, bent, mayWait: operation.mayWait });
}

function chooseParts(dice: Dice, bodyWeight: number): Set<Part> {
  const bent = new Set<Part>();
  const count = dice.weigh(
    [
      [15, 0],
      [60, 1],
      [20, 2],
      [5, 3],
    ],
    1,
  );
  while (bent.size < count) {
    bent.add(
      dice.weigh<Part>(
        [
          [18, 'path'],
          [16, 'query'],
          [22, 'headers'],
          [bodyWeight, 'body'],
          [4, 'method'],
          [10, 'framing'],
        ],
        'body',
      ),
    );
  }
  return bent;
}

interface BodyPlan {
  call: Call;
  route: string;
  bent: ReadonlySet<Part>;
  options: RequestOptions;
}

function composeBody(
  dice: Dice,
  { bent, call, options, route }: BodyPlan,
): { body: Buffer | undefined; mediaType: string } {
  const { bytes: own, json } = call;
  if (own) {
    const body = bent.has('body') ? bendBytes(dice, own.bytes) : own.bytes;
    return { body, mediaType: own.mediaType };
  }
  const mediaType = 'application/json';
  const { allowance } = options;
  const harmless = (value: unknown) => tame(route, value, { allowance, dice });
  if (!bent.has('body')) {
    return { body: json === undefined ? undefined : write(harmless(json)), mediaType };
  }
  if (dice.chance(0.005)) return { body: Buffer.alloc(11_000_000, ' '), mediaType };
  // Of an operation without a body the body itself is what is strange.
  let value: unknown = json ?? { action: 'start' };
  for (let bends = dice.integer(1, 3); bends > 0; bends--) value = bendValue(dice, value);
  const bytes = write(harmless(value));
  return { body: dice.chance(0.2) ? bendBytes(dice, bytes) : bytes, mediaType };
}

function write(value: unknown): Buffer {
  return Buffer.from(JSON.stringify(value) ?? 'undefined');
}

const METHODS: readonly [string, ...string[]] = [
  'GET',
  'HEAD',
  'POST',
  'PUT',
  'PATCH',
  'DELETE',
  'OPTIONS',
  'TRACE',
  'PROPFIND',
  'QUERY',
  'MKCOL',
  'get',
  'FOO',
  'CONNECT',
];

function bendPath(dice: Dice, path: string): string {
  const at = dice.integer(1, path.length);
  const head = path.slice(0, at);
  const rest = path.slice(at);
  const segments = path.split('/');
  const index = dice.integer(1, segments.length - 1);
  const replace = (text: string) => segments.with(index, text).join('/');
  return dice.pick<() => string>([
    () => replace(encodeURIComponent(dice.pick(STRANGE_TEXTS).toWellFormed())),
    () => replace(''),
    () => replace('..'),
    () => replace('%2e%2e'),
    () => replace('a'.repeat(dice.pick([199, 200, 201, 5_000]))),
    () => replace((segments[index] ?? '').toUpperCase()),
    () => replace(`${segments[index]}%00`),
    () => replace('%'.repeat(300)),
    () => `${head}%2F${rest}`,
    () => `${head}%zz${rest}`,
    () => `${head}%C3%28${rest}`,
    () => `${head}%ED%A0%80${rest}`,
    () => `${head}é☃${rest}`,
    () => `${head}\\${rest}`,
    () => `${head};a=b${rest}`,
    () => `${head}//${rest}`,
    () => `${head}#x${rest}`,
    () => `${head}%25%32%66${rest}`,
    () => `${path}/`,
    () => `${path}/more/of/it`,
    () => path.replace('/', '//'),
    () => path.replace(/[a-z]/, (letter) => `%${letter.charCodeAt(0).toString(16)}`),
    () => `http://elsewhere.invalid${path}`,
    () => `/../..${path}`,
    () => '*',
    () => '/',
    () => '/?',
    () => path.slice(1),
  ])();
}

function bendQuery(dice: Dice, query: readonly Header[]): Header[] {
  const [name, value] = dice.pickAny(query) ?? [
    dice.pick(['limit', 'cursor', 'wait', 'ttl', 'after', 'bytes', 'userId', 'status', 'x']),
    '1',
  ];
  const others = query.filter(([each]) => each !== name);
  const strange = () => encodeURIComponent(dice.pick(STRANGE_TEXTS).toWellFormed());
  return dice.pick<() => Header[]>([
    () => [...others, [name, strange()]],
    () => [...others, [name, strange()]],
    () => [...others, [name, value], [name, value]],
    () => [...others, [`${name}[]`, value]],
    () => [...others, [`${name}[a][b]`, value]],
    () => [...others, [name.toUpperCase(), value]],
    () => [...others, [name, '9'.repeat(dice.pick([15, 16, 17, 400]))]],
    () => [...others, [name, dice.pick(['-1', '1.5', '1e3', '0x10', ' 1', '+1', '00', 'NaN'])]],
    () => [...others, [name, '%zz%']],
    () => [...others, [name, 'é']],
    () => [...others, [name, 'a'.repeat(8_000)]],
    () => [...others, [name, Buffer.from('9'.repeat(16)).toString('base64url')]],
    () => [...query, ['__proto__', '1'], ['constructor', '2'], ['__proto__[x]', '3']],
    () => [...query, ...Array.from({ length: 1_500 }, (_, n): Header => [`p${n}`, ''])],
    () => [...query, ['', '']],
    () => [],
  ])();
}

function bendHeaders(dice: Dice, headers: readonly Header[]): Header[] {
  const without = (name: string) => headers.filter(([each]) => each.toLowerCase() !== name);
  const strange = () => dice.pick(STRANGE_TEXTS).replaceAll(/[\r\n\0]/g, '?');
  const typed = (type: string): Header[] => [...without('content-type'), ['Content-Type', type]];
  return dice.pick<() => Header[]>([
    () => typed(dice.pick(MEDIA_TYPES)),
    () => typed(dice.pick(MEDIA_TYPES)),
    () => typed(dice.pick(MEDIA_TYPES)),
    () => [...headers, ['Content-Type', 'application/json'], ['Content-Type', 'text/plain']],
    () => without('content-type'),
    () => without('host'),
    () => [...headers, ['Host', 'elsewhere.invalid']],
    () => [...without('host'), ['Host', strange()]],
    () => [...headers, ['Accept', dice.pick(['', 'text/html', 'a/b;q=x', '*', ',,,', strange()])]],
    () => [...headers, ['Expect', dice.pick(['100-continue', '200-ok', '', '100-continue, x'])]],
    () => [...headers, ['Content-Encoding', dice.pick(['gzip', 'br', 'x', ''])]],
    () => [...headers, ['Authorization', 'Bearer of-another']],
    () => [
      ...headers,
      ['Upgrade', dice.pick(['websocket', 'h2c', 'x'])],
      ['Connection', 'Upgrade'],
    ],
    () => [...headers, ['X-Large', 'a'.repeat(dice.pick([8_000, 15_000, 20_000]))]],
    () => [...headers, ...Array.from({ length: 400 }, (_, n): Header => [`X-${n}`, 'a'])],
    () => [...headers, ['traceparent', strange()], ['tracestate', strange()]],
    () => [...headers, ['traceparent', `00-${'0'.repeat(32)}-${'0'.repeat(16)}-01`]],
    () => [...headers, ['Last-Event-ID', strange()], ['Accept', 'text/event-stream']],
    () => [...headers, ['Millrace-Worker', strange()], ['Millrace-Incarnation', strange()]],
    () => [...headers, ['Range', 'bytes=0-1'], ['If-None-Match', '*'], ['If-Match', '"x"']],
    () => [...headers, ['X-Forwarded-For', '127.0.0.1'], ['Forwarded', 'for=127.0.0.1']],
    () => [...headers, ['Origin', 'null'], ['Sec-Fetch-Site', 'cross-site']],
    () => [...headers, ['X-HTTP-Method-Override', 'DELETE'], ['X-Request-Id', strange()]],
    () => [...headers, ['Cookie', 'a=b; '.repeat(200)]],
    () => [...headers, ['X-Raw', 'caf\u00e9 \u00ff\u0080']],
    () => [...headers, ['User-Agent', `RunPod-Python-SDK/${strange()}`]],
    () => [...headers, ['X Bad Name', 'a']],
    () => [...headers, ['X-Ctl', 'a\u0001\u0000b']],
    () => [...headers, ['X-Folded', 'a\r\n b']],
  ])();
}

const MEDIA_TYPES: readonly [string, ...string[]] = [
  'text/plain',
  'application/json; charset=latin1',
  'application/json; charset=utf-16',
  'APPLICATION/JSON',
  'application/jsonx',
  'application/problem+json',
  'application/x-www-form-urlencoded',
  'multipart/form-data; boundary=x',
  'application/vnd.millrace.frames',
  'application/json, text/plain',
  'application/json;',
  'application/json;=;;"',
  'json',
  '',
  '*/*',
  '/',
  'application/__proto__',
];

interface Framing {
  draft: Draft;
  route: string;
  bent: Set<Part>;
  mayWait: boolean;
}

function frame(dice: Dice, { bent, draft, mayWait, route }: Framing): FuzzRequest {
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
  // With another request behind it: nobody may take the one for a part of the other.
  const isFollowed = !bent.has('headers') && !mayWait && dice.chance(0.25);
  const length: Header[] = body ? [['Content-Length', String(body.length)]] : [];
  const more: Header[] = isFollowed ? length : [...length, ['Connection', 'close']];
  const pieces = [Buffer.concat([head(more), body ?? Buffer.alloc(0)])];
  return {
    ...request,
    maySilence: body !== undefined && isAnsweredEarly(method),
    pieces: isFollowed ? [...pieces, PROBE] : pieces,
    methods: isFollowed ? [method, 'GET'] : [method],
  };
}

type Misframed = Pick<FuzzRequest, 'pieces' | 'methods' | 'maySilence' | 'hangsUp'>;

/** A body that nobody waits for may still be on its way when the connection ends, and resets it. */
function isAnsweredEarly(method: string): boolean {
  return method === 'GET' || method === 'HEAD';
}

interface Unframed {
  method: string;
  body: Buffer;
  head: (more: readonly Header[]) => Buffer;
}

/** Lengths that are not so, chunks of all kinds, bodies that stop. */
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
    // Whole, though unusual.
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
    // Not whole: who sends no more has gone.
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
    // Neither the one nor the other.
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
