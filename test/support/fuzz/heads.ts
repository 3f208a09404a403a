// Changes the heads of the fuzzer's requests: the method, the path, the query and the headers.
import type { Dice } from './dice.ts';
import { STRANGE_TEXTS } from './values.ts';

export type Header = [name: string, value: string];

export const METHODS: readonly [string, ...string[]] = [
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

export function bendPath(dice: Dice, path: string): string {
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

export function bendQuery(dice: Dice, query: readonly Header[]): Header[] {
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

export function bendHeaders(dice: Dice, headers: readonly Header[]): Header[] {
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
