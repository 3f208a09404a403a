// Records of one user: many, large, and asking for more than there is.
import { gzipSync } from 'node:zlib';
import { Header } from 'tar/header';
import type { Attack, AttackContext } from '../attack.ts';
import { inTurns, JSON_TYPE, RawExchange } from '../raw-http.ts';

const KB = 1_024;
const MB = 1_024 * KB;
const REFUSED = ['403', '409', '413', '422', '429'];

async function make({ count, note, target }: AttackContext, path: string, body: object) {
  const bytes = Buffer.from(JSON.stringify(body));
  await inTurns({ count, width: 8 }, async () => {
    const exchange = new RawExchange(target, { path, headers: [JSON_TYPE], body: bytes });
    const { answer, bytes: length } = await exchange.answered;
    note(answer, length);
  });
}

async function list({ note, target }: AttackContext, path: string, times: number): Promise<void> {
  await inTurns({ count: times, width: 4 }, async () => {
    const { answer, bytes } = await new RawExchange(target, { path, isRead: true }).answered;
    note(`list ${answer}`, bytes);
  });
}

function template(bytes: number) {
  return { name: 'large', image: 'none', args: 'true', env: { A: 'x'.repeat(bytes) } };
}

export const resourceAttacks: Attack[] = [
  {
    name: 'templates of 900 KB, then all of them listed',
    count: { short: 20, full: 700 },
    answers: [...REFUSED, 'list 200'],
    async send(context) {
      await make(context, '/v1/templates', template(900 * KB));
      await list(context, '/v1/templates?limit=1000', 4);
    },
  },
  {
    name: 'archives of 100 KB with 20,000 records',
    count: { short: 8, full: 100 },
    answers: ['422', '503'],
    atLeast: { 422: 1 },
    async send({ count, note, target }) {
      const content = '11 path=x\n'.padEnd(512, '\0');
      const header = new Header({ path: 'x', size: 11, mode: 0o644, type: 'ExtendedHeader' });
      header.encode();
      const record = Buffer.concat([header.block ?? Buffer.alloc(0), Buffer.from(content)]);
      const body = gzipSync(Buffer.concat(Array.from({ length: 20_000 }, () => record)));
      const path = `/v1/endpoints/${target.endpoint}/versions?entry=x`;
      const headers = ['Content-Type: application/gzip'];
      await inTurns({ count, width: 8 }, async () => {
        const { answer, bytes } = await new RawExchange(target, { path, headers, body }).answered;
        note(answer, bytes);
      });
    },
  },
  {
    name: 'templates of 200 KB, more than a user may have, then all of them listed',
    count: { short: 220, full: 700 },
    answers: ['201', ...REFUSED, 'list 200'],
    atMost: { 201: 200 },
    atLeast: { 'list 200': 8 },
    largestAnswerBytes: 4 * MB + 64 * KB,
    async send(context) {
      await make(context, '/v1/templates', template(200 * KB));
      await list(context, '/v1/templates?limit=1000', 8);
    },
  },
  {
    name: 'keys, more than a user may have',
    count: { short: 250, full: 1_000 },
    answers: ['201', ...REFUSED],
    atMost: { 201: 200 },
    send: (context) => make(context, '/v1/keys', { name: 'one more', scopes: ['jobs:read'] }),
  },
  {
    name: 'endpoints, more than a user may have',
    count: { short: 150, full: 1_000 },
    answers: ['201', ...REFUSED],
    atMost: { 201: 100 },
    async send(context) {
      const { key, url } = context.target;
      const response = await fetch(`${url}/v1/templates?limit=1`, {
        headers: { authorization: key },
      });
      const [first] = Object(await response.json()).templates;
      const endpoint = { name: 'one more', templateId: first.id, workersMax: 0 };
      await make(context, '/v1/endpoints', endpoint);
    },
  },
  {
    name: 'endpoints with a million workers, and with 1,000',
    count: { short: 4, full: 100 },
    answers: REFUSED,
    async send(context) {
      for (const workersMax of [1_000_000, 1_000]) {
        const endpoint = { name: 'many', templateId: 'any', workersMin: workersMax, workersMax };
        await make(context, '/v1/endpoints', endpoint);
      }
    },
  },
  {
    name: 'pods that ask for all the memory of the machine, each',
    count: { short: 5, full: 20 },
    answers: REFUSED,
    send: (context) =>
      make(context, '/v2/pods', {
        ...{ name: 'large', image: 'none', args: 'sleep 1' },
        cpu: { id: 'cpu', vcpuCount: 1_000, memory: 1_000_000 },
      }),
  },
];
