// How processes end: the platform with its waits answered, the worker with its jobs done, and what is
// found again after a kill.
import { once } from 'node:events';
import { connect } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { jobRecord, readOk } from '../../support/answers.ts';
import { EndpointCaller } from '../../support/endpoint-caller.ts';
import { readEvents } from '../../support/network/event-stream.ts';
import { Gate } from '../../support/network/gate.ts';
import { PlatformProcess } from '../../support/processes.ts';
import { until } from '../../support/until.ts';

let platform: PlatformProcess;
let script: EndpointCaller;

beforeEach(async () => {
  platform = await PlatformProcess.start({ endpoints: ['script'] });
  script = new EndpointCaller(platform, 'script');
});
afterEach(() => platform.close());

describe('SIGTERM of the platform', () => {
  it('answers every open wait with the current state and exits with 0', async () => {
    const id = await script.run({});
    const events = await script.get(`stream/${id}`, { headers: { accept: 'text/event-stream' } });
    const listening = Array.fromAsync(readEvents(events));
    const stream = script.stream(id, '?wait=300000');
    const synced = script.post('runsync?wait=300000', { input: {} });
    await script.newest('IN_QUEUE');
    await until(async () => (await script.list()).jobs.length >= 2, { everyMs: 50 });
    expect(await platform.process.end()).toBe(0);
    expect(await stream).toMatchObject({ chunks: [], status: 'IN_QUEUE' });
    expect((await readOk(await synced, jobRecord)).status).toBe('IN_QUEUE');
    expect(await listening).toEqual([]);
  });

  it('does not wait for polling workers', async () => {
    const worker = platform.startWorker('script', 'api-script.ts');
    await script.untilServed();
    expect(await platform.process.end()).toBe(0);
    expect(worker.child.exitCode).toBeNull();
  });

  it('does not wait for the rest of a request', async () => {
    const socket = connect(Number(new URL(platform.url).port), '127.0.0.1');
    // If the platform ends before it has read the bytes, the connection is reset.
    socket.on('error', () => {});
    const closed = new Promise((resolve) => socket.once('close', resolve));
    socket.write('GET /v2/script/health HTTP/1.1\r\nHost: 127.0.0.1\r\n');
    await once(socket, 'connect');
    expect(await platform.process.end()).toBe(0);
    await closed;
  });
});

describe('SIGTERM of a worker', () => {
  /** The handler runs then: a lease that has not reached its worker goes back to the queue in a drain. */
  const noteIn = ({ path }: Gate) => ({ do: 'note', file: path, text: 'begun' });

  it('finishes its running job, takes no other, and exits with 0', async () => {
    const gate = new Gate(platform.folder);
    const begun = new Gate(platform.folder);
    const steps = [noteIn(begun), { do: 'wait', file: gate.path }];
    const worker = platform.startWorker('script', 'api-script.ts');
    const running = await script.run({ steps, answer: 'in peace' });
    await begun.untilLines(1);
    worker.child.kill('SIGTERM');
    await worker.find(/worker draining/);
    const later = await script.run({ steps: [], answer: 'by another' });
    gate.open();
    expect(await worker.exited).toBe(0);
    expect(await script.status(running)).toMatchObject({
      status: 'COMPLETED',
      attempt: 1,
      output: 'in peace',
    });
    expect(await script.status(later)).toMatchObject({ status: 'IN_QUEUE' });
    expect((await script.health()).workers).toEqual({ idle: 0, running: 0 });
    platform.startWorker('script', 'api-script.ts');
    expect((await script.untilEnd(later)).output).toBe('by another');
  });

  it('stops and releases jobs that do not end in time, uncounted', async () => {
    const stop = new Gate(platform.folder);
    const gate = new Gate(platform.folder);
    const begun = new Gate(platform.folder);
    const steps = [noteIn(begun), { do: 'wait', file: gate.path, stopFile: stop.path }];
    const worker = platform.startWorker('script', 'api-script.ts', '--drain-ms', '100');
    const id = await script.run({ steps, answer: 'second' });
    await begun.untilLines(1);
    expect(await worker.end()).toBe(0);
    expect(stop.lines).toEqual(['shutdown']);
    const record = await script.status(id);
    expect(record).toMatchObject({ status: 'IN_QUEUE', attempt: 1 });
    gate.open();
    platform.startWorker('script', 'api-script.ts');
    expect(await script.untilEnd(id)).toMatchObject({ status: 'COMPLETED', attempt: 2 });
    expect((await script.health()).jobs.retried).toBe(0);
  });
});

describe('SIGKILL of the platform', () => {
  it('keeps jobs of every status, chunks, logs and keys', async () => {
    const gate = new Gate(platform.folder);
    platform.startWorker('script', 'api-script.ts');
    const completed = await script.runsync({ steps: [], answer: { text: 'é' } });
    const failed = await script.runsync({
      steps: [{ do: 'throw', message: 'no', as: 'non-retryable' }],
    });
    const streamed = await script.runsync({ steps: [{ do: 'yield', value: 'chunk' }] });
    const delayed = await script.run({ steps: [] }, { policy: { delay: 600_000 } });
    const running = await script.run({
      steps: [{ do: 'wait', file: gate.path }],
      answer: 'went on',
    });
    await script.untilStatus(running, 'IN_PROGRESS');
    const last = await script.run({ steps: [] }, { idempotencyKey: 'last word' });
    await platform.kill();
    await platform.restart();
    expect(await script.status(completed.id)).toEqual(completed);
    expect(await script.status(failed.id)).toEqual(failed);
    expect((await script.stream(streamed.id, '?after=0')).chunks).toHaveLength(1);
    expect((await script.status(delayed)).status).toBe('IN_QUEUE');
    expect(await script.run({ steps: [] }, { idempotencyKey: 'last word' })).toBe(last);
    gate.open();
    expect(await script.untilEnd(running)).toMatchObject({
      status: 'COMPLETED',
      attempt: 1,
      output: 'went on',
    });
    expect((await script.untilEnd(last)).status).toBe('COMPLETED');
  });
});
