// Workers' messages that hold too much, on both carriers: refused before they are decoded, and the worker
// goes on.
import { describe, expect, it, onTestFinished } from 'vitest';
import { createGrpcServer } from '../../../src/api/grpc/server.ts';
import type { HttpBounds } from '../../../src/api/limits/bounds.ts';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLog } from '../../../src/base/log.ts';
import { encodeFrames, FRAMES_MEDIA_TYPE } from '../../../src/wire/link/http-form.ts';
import { METADATA } from '../../../src/wire/link/worker-stream.ts';
import { MAX_LISTED, MAX_REPORTS } from '../../../src/wire/message-bounds.ts';
import { ENDPOINT, type Platform, readJson, startPlatform } from '../../support/api/platform.ts';
import { RawStream } from '../../support/network/raw-stream.ts';

const WORKER = { workerId: 'w9', incarnation: 3 };
const HELLO = { ...WORKER, protocol: 1, version: '1', slots: 4, devices: [], outbox: [] };
const DEVICE = { kind: 'gpu', index: 0, uuid: 'u'.repeat(200), name: 'n', memoryBytes: 1 };
const REPORT = { jobId: 'j', attempt: 1, token: 't', seq: 1, kind: 'progress' };

function repeat<T>(count: number, element: T): T[] {
  return Array.from({ length: count }, () => element);
}

/** Verbs with a list of so many elements. */
const VERBS = {
  hello: (count: number) => ({ ...HELLO, outbox: repeat(count, lease()) }),
  take: (count: number) => ({
    ...WORKER,
    takeId: 't',
    max: 1,
    waitMs: 0,
    held: repeat(count, 't'),
  }),
  renew: (count: number) => ({
    ...{ ...WORKER, waitMs: 0 },
    leases: repeat(count, { jobId: 'j', token: 't', stopping: true }),
  }),
  bye: (count: number) => ({ ...WORKER, reason: 'drained', outbox: repeat(count, lease()) }),
};

function schemaOf(title: string): string {
  return JSON.stringify({ title });
}

function lease() {
  return { jobId: 'j', attempt: 1, token: 't' };
}

describe('over HTTP', () => {
  const asWorker = ({ worker }: Platform) => ({ authorization: `Bearer ${worker}` });
  const post = (platform: Platform, verb: string, body: unknown) =>
    platform.post(`/v2/${ENDPOINT}/worker/${verb}`, body, { headers: asWorker(platform) });
  const report = (platform: Platform, message: Buffer) =>
    platform.call(`/v2/${ENDPOINT}/worker/report`, {
      method: 'POST',
      body: new Uint8Array(message),
      headers: {
        ...asWorker(platform),
        'content-type': FRAMES_MEDIA_TYPE,
        'millrace-worker': WORKER.workerId,
        'millrace-incarnation': '3',
      },
    });
  const frames = (count: number, header: object) => {
    const frame = Buffer.concat(encodeFrames([{ header, body: Buffer.from('1') }]));
    return Buffer.alloc(count * frame.length, frame);
  };

  it.each(Object.entries(VERBS))(
    'refuses %s with more than 10,000 elements',
    async (verb, build) => {
      const platform = await startPlatform();
      await post(platform, 'hello', HELLO);
      const refused = await post(platform, verb, build(MAX_LISTED + 1));
      expect(refused.status).toBe(422);
      expect(JSON.stringify(await readJson(refused))).toMatch(/(outbox|held|leases).*10000/);
      expect((await post(platform, verb, build(MAX_LISTED))).status).toBeLessThan(300);
    },
  );

  it.each([
    ['a version', { version: 'x'.repeat(201) }],
    ['the name of a device', { devices: [{ ...DEVICE, name: 'x'.repeat(201) }] }],
    ['the UUID of a device', { devices: [{ ...DEVICE, uuid: 'x'.repeat(201) }] }],
    ['a list of devices', { devices: repeat(257, DEVICE) }],
    ['an input schema', { inputSchema: schemaOf('é'.repeat(32_768)) }],
    ['an input schema that is no object', { inputSchema: '[]' }],
    ['an input schema that is no JSON', { inputSchema: '{"type":' }],
    ['a deep input schema', { inputSchema: `${'{"a":'.repeat(64)}{}${'}'.repeat(64)}` }],
  ])('stores %s with the worker, and refuses it if it is too long', async (_, more) => {
    const platform = await startPlatform();
    expect((await post(platform, 'hello', { ...HELLO, ...more })).status).toBe(422);
    const inputSchema = schemaOf('x'.repeat(65_536 - schemaOf('').length));
    const most = { version: 'x'.repeat(200), devices: repeat(256, DEVICE), inputSchema };
    expect((await post(platform, 'hello', { ...HELLO, ...most })).status).toBe(200);
  });

  it('refuses a list of a million elements that no verb has', async () => {
    const platform = await startPlatform();
    const refused = await post(platform, 'hello', { ...HELLO, more: repeat(1_000_000, 0) });
    expect(refused.status).toBe(422);
    expect(await readJson(refused)).toMatchObject({ code: 'invalid' });
  });

  it('refuses a message with 233,016 reports, and answers one with 1,000', async () => {
    const platform = await startPlatform();
    await post(platform, 'hello', HELLO);
    const refused = await report(platform, frames(233_016, {}));
    expect(refused.status).toBe(422);
    expect(await readJson(refused)).toMatchObject({ detail: expect.stringMatching(/\b1000\b/) });
    const answered = await report(platform, frames(MAX_REPORTS, REPORT));
    expect(await readJson(answered)).toEqual(repeat(MAX_REPORTS, { answer: 'gone' }));
  });

  it('refuses a report with a million chunk sizes', async () => {
    const platform = await startPlatform();
    await post(platform, 'hello', HELLO);
    const header = { ...REPORT, kind: 'chunks', first: 0, sizes: repeat(1_000_000, 2) };
    expect((await report(platform, frames(1, header))).status).toBe(422);
  });
});

describe('over gRPC', () => {
  const greet = async () => (await startPort({}))();

  async function startPort(bounds: Partial<HttpBounds>): Promise<() => Promise<RawStream>> {
    const { endpoints, keys, queue, worker } = await startPlatform();
    const server = createGrpcServer({
      ...{ keys, endpoints, clock: systemClock, log: silentLog, host: '127.0.0.1', port: 0 },
      linkTo: (id) => (id === ENDPOINT ? queue.link(id) : undefined),
      noteCrash: () => {},
      isClosing: () => queue.isClosing,
      bounds,
    });
    const { url } = await server.start();
    const streams: RawStream[] = [];
    onTestFinished(async () => {
      for (const stream of streams) stream.close();
      await server.close();
    });
    return async () => {
      const metadata = { authorization: `Bearer ${worker}`, [METADATA.endpoint]: ENDPOINT };
      const stream = new RawStream(url, metadata);
      streams.push(stream);
      expect(await stream.ask({ call: 1, hello: HELLO })).toMatchObject({ kind: 'welcome' });
      return stream;
    };
  }

  const KINDS = { hello: 'hello', take: 'credit', renew: 'renew', bye: 'bye' } as const;

  it.each(Object.entries(VERBS))(
    'refuses %s with more than 10,000 elements',
    async (verb, build) => {
      const stream = await greet();
      const kind = new Map(Object.entries(KINDS)).get(verb) ?? '';
      expect(await stream.ask({ call: 2, [kind]: build(MAX_LISTED + 1) })).toMatchObject({
        ...{ call: 2, kind: 'refusal' },
        refusal: { code: 'invalid', detail: expect.stringMatching(/\b10000\b/) },
      });
      const answer = await stream.ask({ call: 3, [kind]: build(MAX_LISTED) });
      expect(answer).not.toMatchObject({ kind: 'refusal' });
    },
  );

  it('refuses an input schema that is too long or no object, and the stream goes on', async () => {
    const stream = await greet();
    for (const [index, inputSchema] of [schemaOf('x'.repeat(65_536)), '1'].entries()) {
      expect(await stream.ask({ call: 2 + index, hello: { ...HELLO, inputSchema } })).toMatchObject(
        {
          refusal: { code: 'invalid', detail: expect.stringMatching(/inputSchema/) },
        },
      );
    }
    const hello = { ...HELLO, inputSchema: schemaOf('x') };
    expect(await stream.ask({ call: 9, hello })).toMatchObject({ kind: 'welcome' });
  });

  it('refuses a message with many more reports, and answers one with 1,000', async () => {
    const stream = await greet();
    const reports = { ...WORKER, reports: repeat(20_000, {}), payload: Buffer.from('more') };
    await stream.send({ call: 2, reports }, { call: 2, piece: { payload: Buffer.from('rest') } });
    expect(await stream.next()).toMatchObject({
      ...{ call: 2, kind: 'refusal' },
      refusal: { code: 'invalid', detail: expect.stringMatching(/^reports .*\b1000\b/) },
    });
    const one = { ...REPORT, bodyBytes: 1 };
    const payload = Buffer.alloc(MAX_REPORTS, '1');
    const asked = { call: 3, reports: { ...WORKER, reports: repeat(MAX_REPORTS, one), payload } };
    const { reportAnswers } = Object(await stream.ask(asked));
    expect(reportAnswers.answers).toHaveLength(MAX_REPORTS);
  });

  it('reports of one user are refused beyond its byte budget until earlier ones are processed', async () => {
    const join = await startPort({ maxWorkerInFlightBytes: 200_000 });
    const [first, second] = [await join(), await join()];
    const half = Buffer.alloc(30_000, '1');
    const reports = { ...WORKER, reports: [{ ...REPORT, bodyBytes: 60_000 }], payload: half };
    const piece = { payload: half };
    const tell = async (call: number) => {
      await second.send({ call, reports }, { call, piece });
      return second.next();
    };
    await first.send({ call: 2, reports });
    // Its answer shows that the report has arrived.
    await first.ask({ call: 3, renew: { ...WORKER, waitMs: 0, leases: [] } });
    expect(await tell(2)).toMatchObject({
      refusal: { code: 'unavailable', retryAfterMs: expect.any(Number) },
    });
    await first.send({ call: 2, piece });
    expect(await first.next()).toMatchObject({ call: 2, kind: 'reportAnswers' });
    await expect.poll(() => tell(3)).toMatchObject({ kind: 'reportAnswers' });
  });

  it('ends the stream of a report that stalls', async () => {
    const join = await startPort({ stallMs: 100 });
    const stream = await join();
    const reports = {
      ...WORKER,
      reports: [{ ...REPORT, bodyBytes: 2 }],
      payload: Buffer.from('1'),
    };
    await stream.send({ call: 2, reports });
    expect(await stream.status).toMatchObject({ details: 'a report stopped arriving' });
  });
});
