// Bodies that are small enough to be let in and cost far more than their bytes to look into.
import type { Attack, AttackContext } from '../attack.ts';
import { inTurns, JSON_TYPE, RawExchange } from '../raw-http.ts';

const MB = 1_048_576;

/** `{"0":0,"1":0,…}` of so many bytes at the most, with `rest` in front of the members. */
function writeMembers(maxBytes: number, rest: string): Buffer {
  const parts = [`{${rest}`];
  let bytes = rest.length + 2;
  for (let n = 0; ; n++) {
    const member = `,"${n}":0`;
    bytes += member.length;
    if (bytes > maxBytes) break;
    parts.push(member);
  }
  parts.push('}');
  return Buffer.from(parts.join(''));
}

function nest(open: string, close: string, levels: number): string {
  return open.repeat(levels) + close.repeat(levels);
}

async function postAll(
  { count, note, target }: AttackContext,
  path: (endpoint: string) => string,
  body: Buffer,
): Promise<void> {
  const headers = [JSON_TYPE];
  const posted = Array.from({ length: count }, async () => {
    const exchange = new RawExchange(target, { path: path(target.endpoint), headers, body });
    const { answer, bytes } = await exchange.answered;
    note(answer, bytes);
  });
  await Promise.all(posted);
}

const runsync = (endpoint: string) => `/v2/${endpoint}/runsync?wait=1000`;
const run = (endpoint: string) => `/v2/${endpoint}/run`;
/** Unknown members of 24 KB, each of which the check names. */
const UNKNOWN = Array.from({ length: 2_000 }, (_, n) => `"m${n}":${n}`);
/** What a body may be answered with that is refused before it was read to its end. */
const REFUSED = ['400', '413', '422', '503', 'closed'];

export const bodyAttacks: Attack[] = [
  {
    name: 'keys with 2,000 unknown members',
    count: { short: 200, full: 4_000 },
    answers: ['422'],
    async send({ count, note, target }) {
      const body = Buffer.from(`{"name":"x",${UNKNOWN.join()}}`);
      await inTurns({ count, width: 16 }, async () => {
        const request = { path: '/v1/keys', headers: [JSON_TYPE], body };
        const { answer, bytes } = await new RawExchange(target, request).answered;
        note(answer, bytes);
      });
    },
  },
  {
    name: 'runsync of 20 MB: 2,000,000 members beside the input',
    count: { short: 1, full: 10 },
    answers: REFUSED,
    send: (context) => postAll(context, runsync, writeMembers(20 * MB, '"input":{}')),
  },
  {
    name: 'runsync of 20 MB: 500,000 members in the policy',
    count: { short: 1, full: 10 },
    answers: REFUSED,
    send(context) {
      const policy = writeMembers(20 * MB - 100, '"ttl":60000').toString();
      const body = Buffer.from(`{"input":{},"policy":${policy}}`);
      return postAll(context, runsync, body);
    },
  },
  {
    name: 'run on the RunPod path: 10 MB of members beside the input',
    count: { short: 1, full: 10 },
    answers: REFUSED,
    send(context) {
      const path = (endpoint: string) => `/runpod/v2/${endpoint}/run`;
      return postAll(context, path, writeMembers(10 * MB, '"input":{}'));
    },
  },
  {
    name: 'an input of 10 MB with a million keys',
    count: { short: 1, full: 10 },
    answers: ['200', '503'],
    send(context) {
      const input = writeMembers(10 * MB - 100, '"a":0').toString();
      return postAll(context, run, Buffer.from(`{"input":${input}}`));
    },
  },
  {
    name: 'an input nested 4,000,000 deep',
    count: { short: 1, full: 10 },
    answers: ['200', ...REFUSED],
    send(context) {
      const deep = nest('[', ']', 4_000_000);
      return postAll(context, run, Buffer.from(`{"input":{"a":${deep}}}`));
    },
  },
  {
    name: 'a policy nested 4,000,000 deep',
    count: { short: 1, full: 10 },
    answers: REFUSED,
    send(context) {
      const deep = nest('[', ']', 4_000_000);
      return postAll(context, run, Buffer.from(`{"input":{},"policy":${deep}}`));
    },
  },
  {
    name: 'an input of 10 MB in one key that is all escapes',
    count: { short: 1, full: 10 },
    answers: ['200', '503'],
    send(context) {
      const key = '\\u0061'.repeat(Math.floor((10 * MB - 100) / 6));
      return postAll(context, run, Buffer.from(`{"input":{"${key}":0}}`));
    },
  },
  {
    name: 'templates, keys, endpoints and pods with as many members as fit',
    count: { short: 8, full: 80 },
    answers: REFUSED,
    async send({ count, note, target }) {
      const many = writeMembers(MB, '"a":"b"').toString();
      const list = `[${Array.from({ length: 200_000 }, () => '{}').join()}]`;
      const bodies = {
        '/v1/templates': `{"name":"a","image":"a","env":${many},"ports":${list}}`,
        '/v1/keys': `{"name":"a","scopes":${list}}`,
        '/v1/endpoints': `{"name":"a","templateId":"a","gpuTypeIds":${list},${many.slice(1)}`,
        '/v2/pods': `{"name":"a","image":"a","mounts":${many},"ports":${list}}`,
      };
      const paths = Object.entries(bodies).map(([path, text]) => ({
        path,
        body: Buffer.from(text),
      }));
      await inTurns({ count, width: 8 }, async (n) => {
        const { body, path } = paths[n % paths.length] ?? { path: '', body: Buffer.alloc(0) };
        const exchange = new RawExchange(target, { path, headers: [JSON_TYPE], body });
        const { answer, bytes } = await exchange.answered;
        note(answer, bytes);
      });
    },
  },
  {
    name: 'a body of 2 MB in chunks of one byte',
    count: { short: 1, full: 20 },
    answers: ['200', ...REFUSED],
    async send({ count, note, target }) {
      const text = `{"input":{"a":"${'x'.repeat(2 * MB)}"}}`;
      const chunks = Buffer.from(`${text.replace(/./g, '1\r\n$&\r\n')}0\r\n\r\n`);
      const posted = Array.from({ length: count }, async () => {
        const exchange = new RawExchange(target, {
          ...{ path: run(target.endpoint), method: 'POST' },
          headers: [JSON_TYPE, 'Transfer-Encoding: chunked'],
        });
        exchange.socket.write(chunks);
        const { answer, bytes } = await exchange.answered;
        note(answer, bytes);
      });
      await Promise.all(posted);
    },
  },
];
