// GET /stream as JSON arrays: the default cursor, positions, waiting, new attempts.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readProblem } from '../../support/answers.ts';
import { EndpointCaller } from '../../support/endpoint-caller.ts';
import type { Step } from '../../support/handlers/api-script.ts';
import { Gate } from '../../support/network/gate.ts';
import { PlatformProcess } from '../../support/processes.ts';

const NO_METRICS = { metrics: {} };

let platform: PlatformProcess;
let script: EndpointCaller;
let unserved: EndpointCaller;

beforeAll(async () => {
  platform = await PlatformProcess.start({ endpoints: ['script', 'unserved'] });
  script = new EndpointCaller(platform, 'script');
  unserved = new EndpointCaller(platform, 'unserved');
  platform.startWorker('script', 'api-script.ts', '--unsupervised');
  await script.untilServed();
});
afterAll(() => platform.close());

const sayAll = (...values: unknown[]): Step[] => values.map((value) => ({ do: 'yield', value }));
const outputs = (values: unknown[]) => values.map((output) => ({ output, ...NO_METRICS }));

/** A job that has yielded these and then waits for the gate. */
async function startHeld(...values: unknown[]): Promise<{ id: string; gate: Gate }> {
  const gate = new Gate(platform.folder);
  const steps = [...sayAll(...values), { do: 'wait', file: gate.path }, ...sayAll('last')];
  const id = await script.run({ steps });
  let seen = 0;
  while (seen < values.length) seen = (await script.stream(id, '?after=0&wait=100')).chunks.length;
  return { id, gate };
}

describe('the stream of a running job', () => {
  it('returns each chunk with its metrics while the job runs', async () => {
    const gate = new Gate(platform.folder);
    const steps = [
      { do: 'yield', value: { token: 'é' }, metrics: { tokens: 1, ms: 0.5 } },
      { do: 'wait', file: gate.path },
    ];
    const id = await script.run({ steps });
    expect(await script.stream(id)).toEqual({
      chunks: [{ output: { token: 'é' }, metrics: { tokens: 1, ms: 0.5 } }],
      next: '1.0',
      status: 'IN_PROGRESS',
      reset: null,
    });
    gate.open();
  });

  it('returns each chunk once by default, and then nothing', async () => {
    const { gate, id } = await startHeld('a', 'b');
    expect((await script.stream(id)).chunks).toEqual(outputs(['a', 'b']));
    expect((await script.stream(id, '?wait=0')).chunks).toEqual([]);
    const waiting = script.stream(id);
    gate.open();
    expect((await waiting).chunks).toEqual(outputs(['last']));
    await script.untilStatus(id, 'COMPLETED');
    expect(await script.stream(id)).toMatchObject({ chunks: [], status: 'COMPLETED' });
  });

  it('returns the chunks after a position repeatedly, and does not move the default cursor', async () => {
    const { gate, id } = await startHeld('a', 'b', 'c');
    for (const _ of [1, 2]) {
      expect((await script.stream(id, '?after=0')).chunks).toEqual(outputs(['a', 'b', 'c']));
      expect((await script.stream(id, '?after=1.0')).chunks).toEqual(outputs(['b', 'c']));
    }
    expect((await script.stream(id)).chunks).toEqual(outputs(['a', 'b', 'c']));
    gate.open();
  });

  it('can be read to its end by the position in each answer', async () => {
    const { gate, id } = await startHeld(1, 2);
    gate.open();
    const seen: unknown[] = [];
    let after: string | null = '0';
    for (;;) {
      const page = await script.stream(id, `?after=${after}`);
      seen.push(...page.chunks.map(({ output }) => output));
      after = page.next;
      if (page.chunks.length === 0 && page.status === 'COMPLETED') break;
    }
    expect({ seen, after }).toEqual({ seen: [1, 2, 'last'], after: '1.2' });
  });

  it('returns [] at once if the wait is 0', async () => {
    const { gate, id } = await startHeld('a');
    const page = await script.stream(id, '?after=1.0&wait=0');
    expect(page).toEqual({ chunks: [], next: '1.0', status: 'IN_PROGRESS', reset: null });
    gate.open();
  });

  it('answers when the next chunk arrives, however long the wait', async () => {
    const { gate, id } = await startHeld('a');
    const waiting = script.stream(id, '?after=1.0&wait=300000');
    gate.open();
    expect((await waiting).chunks).toEqual(outputs(['last']));
  });

  it('answers [] when the job is cancelled, however long the wait', async () => {
    const { id } = await startHeld('a');
    const waiting = script.stream(id, '?after=1.0&wait=300000');
    await script.post(`cancel/${id}`);
    expect(await waiting).toMatchObject({ chunks: [], status: 'CANCELLED' });
  });
});

describe('the parameters of stream', () => {
  it.each(['-1', '300001', '1.5', 'abc', ''])('return 422 for wait=%s', async (wait) => {
    const id = await unserved.run({});
    const { errors } = await readProblem(await unserved.get(`stream/${id}?wait=${wait}`), 422);
    expect(errors).toEqual([expect.stringMatching(/^wait: .*0.*300000/)]);
  });

  it.each(['1', '1.', '.1', '1.-1', '0.1', '1.0.0', 'x', '2.0'])(
    'return 422 for after=%s',
    async (after) => {
      const id = await unserved.run({});
      const { errors } = await readProblem(await unserved.get(`stream/${id}?after=${after}`), 422);
      expect(errors).toEqual([expect.stringMatching(/^after: /)]);
    },
  );
});

describe('the stream of a queued job', () => {
  it('is [] after the wait, at the start position', async () => {
    const id = await unserved.run({});
    expect(await unserved.stream(id, '?wait=0')).toEqual({
      chunks: [],
      next: '0',
      status: 'IN_QUEUE',
      reset: null,
    });
  });
});

describe('the stream of a job whose handler does not yield', () => {
  it('is [] until the job ends, and then its output as one chunk', async () => {
    const gate = new Gate(platform.folder);
    const id = await script.run({
      steps: [{ do: 'wait', file: gate.path }],
      answer: { whole: true },
    });
    await script.untilStatus(id, 'IN_PROGRESS');
    expect((await script.stream(id, '?wait=0')).chunks).toEqual([]);
    const waiting = script.stream(id);
    gate.open();
    expect((await waiting).chunks).toEqual(outputs([{ whole: true }]));
    expect((await script.stream(id)).chunks).toEqual([]);
    expect((await script.stream(id, '?after=0')).chunks).toEqual(outputs([{ whole: true }]));
  });
});

describe('the stream of a failed job', () => {
  it('returns the yielded chunks, and then []', async () => {
    const steps = [...sayAll('a'), { do: 'throw', message: 'no', as: 'non-retryable' }];
    const id = await script.run({ steps });
    await script.untilStatus(id, 'FAILED');
    expect((await script.stream(id)).chunks).toEqual(outputs(['a']));
    expect(await script.stream(id)).toMatchObject({ chunks: [], status: 'FAILED' });
  });
});

describe('a generator that returns a value', () => {
  it('has that value as its output, and its chunks in the stream', async () => {
    const id = await script.run({ steps: sayAll('a', 'b'), answer: 'returned' });
    expect((await script.untilStatus(id, 'COMPLETED')).output).toBe('returned');
    expect((await script.stream(id, '?after=0')).chunks).toEqual(outputs(['a', 'b']));
  });
});

describe('a new attempt', () => {
  /** The first attempt yields two chunks and fails, the second one waits in its middle. */
  async function startAnew() {
    const first = new Gate(platform.folder);
    const second = new Gate(platform.folder);
    const steps: Step[] = [
      ...sayAll('old 1', 'old 2').map((step) => ({ ...step, onlyInAttempt: 1 })),
      { do: 'wait', file: first.path, onlyInAttempt: 1 },
      { do: 'throw', message: 'again', as: 'retry at once', onlyInAttempt: 1 },
      { do: 'yield', value: 'new 1' },
      { do: 'wait', file: second.path },
      { do: 'yield', value: 'new 2' },
    ];
    return { id: await script.run({ steps }), first, second };
  }

  it('restarts the stream with Millrace-Reset for a reader at an older position', async () => {
    const { first, id, second } = await startAnew();
    const old = await script.stream(id, '?after=0');
    expect(old.next).toMatch(/^1\.[01]$/);
    first.open();
    await script.until(id, ({ attempt }) => attempt === 2);
    const anew = await script.stream(id, `?after=${old.next}`);
    expect(anew).toMatchObject({ reset: 'true', status: 'IN_PROGRESS' });
    second.open();
    const rest = await script.stream(id, `?after=${anew.next}`);
    const all = [...anew.chunks, ...rest.chunks];
    // The reset may be told before the first new chunk is there.
    await script.untilStatus(id, 'COMPLETED');
    const last = await script.stream(id, `?after=${rest.next}`);
    expect([...all, ...last.chunks]).toEqual(outputs(['new 1', 'new 2']));
    expect(rest.reset).toBeNull();
  });

  it('restarts the stream of the default cursor', async () => {
    const { first, id, second } = await startAnew();
    expect((await script.stream(id)).chunks[0]?.output).toBe('old 1');
    first.open();
    second.open();
    await script.untilStatus(id, 'COMPLETED');
    expect((await script.stream(id)).chunks).toEqual(outputs(['new 1', 'new 2']));
  });

  it('leaves no chunk of the older attempt in the output', async () => {
    const { first, id, second } = await startAnew();
    first.open();
    second.open();
    expect((await script.untilStatus(id, 'COMPLETED')).output).toEqual(['new 1', 'new 2']);
  });
});
