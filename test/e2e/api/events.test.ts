// GET /stream as server-sent events: chunks with their positions, resuming, new attempts, the end.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { jobRecord, readProblem } from '../../support/answers.ts';
import { EndpointCaller } from '../../support/endpoint-caller.ts';
import type { Step } from '../../support/handlers/api-script.ts';
import { readEvents, type ServerEvent } from '../../support/network/event-stream.ts';
import { Gate } from '../../support/network/gate.ts';
import { PlatformProcess } from '../../support/processes.ts';

let platform: PlatformProcess;
let script: EndpointCaller;
let sizes: EndpointCaller;

beforeAll(async () => {
  platform = await PlatformProcess.start({ endpoints: ['script', 'sizes', 'unserved'] });
  script = new EndpointCaller(platform, 'script');
  sizes = new EndpointCaller(platform, 'sizes');
  platform.startWorker('script', 'api-script.ts', '--unsupervised');
  platform.startWorker('sizes', 'api-sizes.ts', '--unsupervised');
});
afterAll(() => platform.close());

const sayAll = (...values: unknown[]): Step[] => values.map((value) => ({ do: 'yield', value }));

interface Listening {
  lastEventId?: string;
  query?: string;
}

async function listen(
  endpoint: EndpointCaller,
  id: string,
  { lastEventId, query = '' }: Listening = {},
) {
  const headers: Record<string, string> = { accept: 'text/event-stream' };
  if (lastEventId !== undefined) headers['last-event-id'] = lastEventId;
  const response = await endpoint.get(`stream/${id}${query}`, { headers });
  expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
  return readEvents(response);
}

async function readAll(endpoint: EndpointCaller, id: string, listening?: Listening) {
  return Array.fromAsync(await listen(endpoint, id, listening));
}

async function next(events: AsyncGenerator<ServerEvent>): Promise<ServerEvent | undefined> {
  const { done, value } = await events.next();
  return done ? undefined : value;
}

const message = (id: string, output: unknown, metrics = {}): ServerEvent => ({
  event: 'message',
  id,
  data: JSON.stringify({ output, metrics }),
});

describe('the events of a job', () => {
  it('are its chunks with their positions, and finally its record', async () => {
    const steps = [...sayAll('é', { two: [2] }), { do: 'yield', value: 3, metrics: { tokens: 1 } }];
    const id = await script.run({ steps });
    const events = await readAll(script, id);
    expect(events.slice(0, -1)).toEqual([
      message('1.0', 'é'),
      message('1.1', { two: [2] }),
      message('1.2', 3, { tokens: 1 }),
    ]);
    const done = events.at(-1);
    expect(done?.event).toBe('done');
    expect(jobRecord.parse(JSON.parse(done?.data ?? ''))).toEqual(await script.status(id));
  });

  it('arrive while the job runs', async () => {
    const gate = new Gate(platform.folder);
    const steps = [...sayAll('early'), { do: 'wait', file: gate.path }, ...sayAll('late')];
    const events = await listen(script, await script.run({ steps }));
    expect(await next(events)).toEqual(message('1.0', 'early'));
    gate.open();
    expect(await next(events)).toEqual(message('1.1', 'late'));
    expect((await next(events))?.event).toBe('done');
    expect(await next(events)).toBeUndefined();
  });

  it('begin after Last-Event-ID', async () => {
    const id = await script.run({ steps: sayAll('a', 'b', 'c') });
    await script.untilEnd(id);
    const events = await readAll(script, id, { lastEventId: '1.1' });
    expect(events.slice(0, -1)).toEqual([message('1.2', 'c')]);
    expect(events).toHaveLength(2);
  });

  it('begin after Last-Event-ID even if the URL has another position', async () => {
    const id = await script.run({ steps: sayAll('a', 'b', 'c') });
    await script.untilEnd(id);
    const events = await readAll(script, id, { lastEventId: '1.1', query: '?after=1.0' });
    expect(events[0]).toEqual(message('1.2', 'c'));
    const first = await readAll(script, id, { query: '?after=1.0' });
    expect(first[0]).toEqual(message('1.1', 'b'));
  });

  it('resume after a broken connection', async () => {
    const gate = new Gate(platform.folder);
    const steps = [...sayAll('a', 'b'), { do: 'wait', file: gate.path }, ...sayAll('c')];
    const id = await script.run({ steps });
    const broken = await listen(script, id);
    await next(broken);
    const seen = await next(broken);
    await broken.return();
    gate.open();
    const events = await readAll(script, id, { lastEventId: seen?.id ?? '' });
    expect(events[0]).toEqual(message('1.2', 'c'));
  });

  it('do not move the default cursor of the JSON stream', async () => {
    const id = await script.run({ steps: sayAll('a', 'b') });
    await readAll(script, id);
    expect((await script.stream(id)).chunks).toHaveLength(2);
  });

  it('return 422 for an invalid position', async () => {
    const id = await script.run({ steps: [] });
    const headers = { accept: 'text/event-stream', 'last-event-id': 'abc' };
    await readProblem(await script.get(`stream/${id}`, { headers }), 422);
  });

  it('return 404 and a problem body for an unknown job', async () => {
    const headers = { accept: 'text/event-stream' };
    await readProblem(await script.get('stream/none', { headers }), 404);
  });
});

describe('a new attempt', () => {
  const steps = (gate: Gate): Step[] => [
    { do: 'yield', value: 'old', onlyInAttempt: 1 },
    { do: 'wait', file: gate.path, onlyInAttempt: 1 },
    { do: 'throw', message: 'again', as: 'retry at once', onlyInAttempt: 1 },
    { do: 'yield', value: 'new' },
  ];

  it('resets open streams', async () => {
    const gate = new Gate(platform.folder);
    const events = await listen(script, await script.run({ steps: steps(gate) }));
    expect(await next(events)).toEqual(message('1.0', 'old'));
    gate.open();
    expect(await next(events)).toEqual({ event: 'reset', id: undefined, data: '{"attempt":2}' });
    expect(await next(events)).toEqual(message('2.0', 'new'));
    expect((await next(events))?.event).toBe('done');
  });

  it('resets clients that reconnect with an older position', async () => {
    const gate = new Gate(platform.folder);
    gate.open();
    const id = await script.run({ steps: steps(gate) });
    await script.untilEnd(id);
    const events = await readAll(script, id, { lastEventId: '1.0' });
    expect(events.map(({ event }) => event)).toEqual(['reset', 'message', 'done']);
  });
});

describe('the last event', () => {
  it('contains the error of a failed job', async () => {
    const steps = [...sayAll('a'), { do: 'throw', message: 'broken', as: 'non-retryable' }];
    const events = await readAll(script, await script.run({ steps }));
    expect(events.map(({ event }) => event)).toEqual(['message', 'done']);
    expect(JSON.parse(events.at(-1)?.data ?? '')).toMatchObject({
      status: 'FAILED',
      error: { message: 'broken' },
    });
  });

  it('is sent at once when a queued job is cancelled', async () => {
    const unserved = new EndpointCaller(platform, 'unserved');
    const id = await unserved.run({});
    const events = await listen(unserved, id);
    await unserved.post(`cancel/${id}`);
    const done = await next(events);
    expect(done?.event).toBe('done');
    expect(JSON.parse(done?.data ?? '')).toMatchObject({ id, status: 'CANCELLED' });
  });
});

describe('the events of a large output', () => {
  it('are pieces of at most 1,000,000 bytes each', async () => {
    const id = await sizes.run({ bytes: 2_500_000, shape: 'text', yields: 1 });
    const events = await readAll(sizes, id);
    const pieces = events.filter(({ event }) => event === 'message');
    expect(pieces).toHaveLength(3);
    for (const { data } of pieces) expect(Buffer.byteLength(data)).toBeLessThanOrEqual(1_000_000);
  });
});
