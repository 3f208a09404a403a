// How a handler's attempt becomes the job's status, output or error.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EndpointCaller } from '../../support/endpoint-caller.ts';
import { makeValue } from '../../support/handlers/api-sizes.ts';
import { Gate } from '../../support/network/gate.ts';
import { PlatformProcess } from '../../support/processes.ts';

const OUTPUT_LIMIT = 20_971_520;

let platform: PlatformProcess;
let script: EndpointCaller;
let order: EndpointCaller;
let sizes: EndpointCaller;

beforeAll(async () => {
  platform = await PlatformProcess.start({
    endpoints: ['script', 'order', 'sizes', 'stuck'],
    args: ['--retry-base-ms', '10'],
  });
  script = new EndpointCaller(platform, 'script');
  order = new EndpointCaller(platform, 'order');
  sizes = new EndpointCaller(platform, 'sizes');
  platform.startWorker('script', 'api-script.ts', '--worker-id', 'w1');
  platform.startWorker('order', 'api-order.ts');
  platform.startWorker('sizes', 'api-sizes.ts');
});
afterAll(() => platform.close());

describe('a handler that throws', () => {
  it('is attempted three times, and then the job is FAILED with the history', async () => {
    const steps = [1, 2, 3].map((n) => ({ do: 'throw', message: `no. ${n}`, onlyInAttempt: n }));
    const { error, ...record } = await script.runsync({ steps });
    expect(record).toMatchObject({ status: 'FAILED', attempt: 3, workerId: 'w1' });
    expect(error).toMatchObject({ code: 'handler_error', message: 'no. 3', type: 'TypeError' });
    expect(error?.stack).toContain('api-script.ts');
    expect(error?.attempts).toEqual(
      [1, 2, 3].map((attempt) => ({
        attempt,
        code: 'handler_error',
        message: `no. ${attempt}`,
        workerId: 'w1',
        startedAt: expect.any(Number),
        endedAt: expect.any(Number),
      })),
    );
  });

  it('leaves no error in the record if a later attempt succeeds', async () => {
    const steps = [{ do: 'throw', message: 'at first', onlyInAttempt: 1 }];
    const record = await script.runsync({ steps, answer: 'then' });
    expect(record).toMatchObject({ status: 'COMPLETED', attempt: 2, output: 'then' });
    expect(record).not.toHaveProperty('error');
  });

  it('is not retried after a NonRetryableError', async () => {
    const steps = [{ do: 'throw', message: 'never', as: 'non-retryable' }];
    const { attempt, error, status } = await script.runsync({ steps });
    expect({ attempt, status }).toEqual({ attempt: 1, status: 'FAILED' });
    expect(error).toMatchObject({ code: 'handler_error', type: 'NonRetryableError' });
    expect(error?.attempts).toHaveLength(1);
  });

  it('is retried after a RetryAfterError', async () => {
    const steps = [{ do: 'throw', message: 'soon', as: 'retry at once', onlyInAttempt: 1 }];
    expect(await script.runsync({ steps })).toMatchObject({ status: 'COMPLETED', attempt: 2 });
  });

  it('waits in the queue between attempts, and can be cancelled there', async () => {
    const slow = await PlatformProcess.start({
      endpoints: ['script'],
      args: ['--retry-base-ms', '60000'],
    });
    try {
      const waiting = new EndpointCaller(slow, 'script');
      slow.startWorker('script', 'api-script.ts');
      const id = await waiting.run({ steps: [{ do: 'throw', message: 'wait' }] });
      const record = await waiting.until(
        id,
        ({ attempt, status }) => attempt === 1 && status === 'IN_QUEUE',
      );
      expect(record).not.toHaveProperty('error');
      expect((await waiting.health()).jobs).toMatchObject({ inQueue: 1, retried: 1 });
      await waiting.post(`cancel/${id}`);
      expect((await waiting.status(id)).status).toBe('CANCELLED');
    } finally {
      await slow.close();
    }
  });
});

describe('a handler that exceeds its timeout', () => {
  it('makes the job TIMED_OUT without another attempt', async () => {
    const never = new Gate(platform.folder);
    const stop = new Gate(platform.folder);
    const steps = [{ do: 'wait', file: never.path, stopFile: stop.path }];
    const record = await script.runsync({ steps }, { policy: { executionTimeout: 1_000 } });
    expect(record).toMatchObject({ status: 'TIMED_OUT', attempt: 1 });

    expect(record.error).toMatchObject({
      code: 'execution_timeout',
      attempts: [{ attempt: 1, code: 'execution_timeout' }],
    });
    expect(await stop.untilLines(1)).toEqual(['timeout']);
  });

  it('makes the job TIMED_OUT even if it ignores its signal', async () => {
    platform.startWorker('stuck', 'effects.ts');
    const stuck = new EndpointCaller(platform, 'stuck');
    const record = await stuck.runsync(
      { do: 'ignore the signal' },
      { policy: { executionTimeout: 1_000 } },
    );
    const error = { code: 'execution_timeout', stuck: { state: 'waiting', chunks: 0 } };
    expect(record).toMatchObject({ status: 'TIMED_OUT', error });
    // The thread was killed, and there is a new one.
    expect((await stuck.runsync({ do: 'answer', value: 1 })).output).toBe(1);
  });
});

describe('progress', () => {
  it('is in the record only while the job runs', async () => {
    const gate = new Gate(platform.folder);
    const steps = [
      { do: 'progress', value: { percent: 30 } },
      { do: 'wait', file: gate.path },
    ];
    const id = await script.run({ steps });
    const running = await script.until(id, ({ progress }) => progress !== undefined);
    expect(running).toMatchObject({ status: 'IN_PROGRESS', progress: { percent: 30 } });
    gate.open();
    expect(await script.untilStatus(id, 'COMPLETED')).not.toHaveProperty('progress');
  });
});

describe('schemas', () => {
  it('fail a job with an invalid input before the handler runs, and name every path', async () => {
    const record = await order.runsync({
      lines: [{ item: 'tea' }, { item: '', quantity: 1.5 }],
      note: 7,
      extra: true,
    });
    expect(record).toMatchObject({ status: 'FAILED', attempt: 1, executionTime: 0 });
    expect(record.error?.code).toBe('input_invalid');
    for (const path of ['input.lines[1].item', 'input.lines[1].quantity', 'input.note', 'extra']) {
      expect(record.error?.message).toContain(path);
    }
  });

  it('add their defaults to the input', async () => {
    const record = await order.runsync({ lines: [{ item: 'tea' }, { item: 'cup', quantity: 2 }] });
    expect(record.output).toEqual({ total: 3 });
  });

  it('fail a job with an invalid output, and name the path', async () => {
    const record = await order.runsync({ lines: [], wrong: 'shape' });
    expect(record).toMatchObject({
      status: 'FAILED',
      attempt: 1,
      error: { code: 'output_invalid' },
    });
    expect(record.error?.message).toContain('output.total');
  });

  it('are not needed to fail a job whose output is not JSON', async () => {
    const record = await order.runsync({ lines: [], wrong: 'not JSON' });
    expect(record).toMatchObject({
      status: 'FAILED',
      attempt: 1,
      error: { code: 'output_invalid' },
    });
    expect(record.error?.message).toContain('output.lines[0].price');
  });
});

describe('the limit of an output', () => {
  it('accepts exactly 20 MB of multi-byte text', async () => {
    const wanted = { bytes: OUTPUT_LIMIT, shape: 'text' } as const;
    const { output, status } = await sizes.runsync(wanted);
    expect(status).toBe('COMPLETED');
    expect(output === makeValue(wanted)).toBe(true);
  });

  it('fails the job at one more byte, with both sizes', async () => {
    const record = await sizes.runsync({ bytes: OUTPUT_LIMIT + 1, shape: 'object' });
    expect(record).toMatchObject({ status: 'FAILED', attempt: 1 });
    expect(record).not.toHaveProperty('output');
    expect(record.error?.code).toBe('output_too_large');
    expect(record.error?.message).toContain(String(OUTPUT_LIMIT + 1));
    expect(record.error?.message).toContain(String(OUTPUT_LIMIT));
  });

  it('accepts yielded values whose array has exactly 20 MB', async () => {
    const wanted = { bytes: OUTPUT_LIMIT - '[]'.length, shape: 'text', yields: 1 } as const;
    const record = await sizes.runsync(wanted);
    expect(record.status).toBe('COMPLETED');
    expect(JSON.stringify(record.output) === JSON.stringify([makeValue(wanted)])).toBe(true);
  });

  it('omits the output, with its size, if the array has one more byte', async () => {
    const wanted = { bytes: OUTPUT_LIMIT - '[]'.length + 1, shape: 'text', yields: 1 } as const;
    const record = await sizes.runsync(wanted);
    expect(record.status).toBe('COMPLETED');
    expect(record).not.toHaveProperty('output');
    expect(record.outputBytes).toBeGreaterThan(OUTPUT_LIMIT);
  });
});
