// A model server: a real program that speaks HTTP, its requests, its end, and what its jobs see of it.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import {
  createModelServer,
  ModelProcessError,
  type ModelServer,
  type ModelServerOptions,
  readEvents,
} from 'millrace/process';
import { describe, expect, it, onTestFinished } from 'vitest';
import { retryAdvice } from '../../../src/handler/thrown.ts';
import { isRunning, RecordedLog } from '../../support/models/model-stand.ts';
import { leaveOutWithoutPython } from '../../support/python.ts';

const PROGRAM = resolve(import.meta.dirname, '../../support/models/server.py');

async function startServer(options: Partial<ModelServerOptions> = {}, flags: string[] = []) {
  const log = new RecordedLog();
  const args = [PROGRAM, '{port}', ...flags];
  const server = createModelServer({ command: 'python3', args, ...options });
  onTestFinished(() => server.stop());
  await server.start({ log });
  return { log, server };
}

const caught = (promise: Promise<unknown>) => promise.then(undefined, (error: unknown) => error);
const complete = (server: ModelServer, prompt: string, signal?: AbortSignal) =>
  server.fetch('/v1/completions', { json: { prompt } }, { ...(signal && { signal }) });
const readState = async (server: ModelServer): Promise<{ sent: number }> =>
  JSON.parse(await (await server.fetch('/state')).text());
const set = (server: ModelServer, json: object) => server.fetch('/set', { json });

describe.skipIf(leaveOutWithoutPython('model-server.test.ts'))('a model server', () => {
  it('starts with a free port, passes requests on, and logs what it prints', async () => {
    const { log, server } = await startServer();
    const answer = await complete(server, 'the mill turns');
    const events = (await Array.fromAsync(readEvents(answer))).map((data) => JSON.parse(data).text);
    expect(events).toEqual(['the', 'mill', 'turns']);
    expect(answer.headers.get('content-type')).toBe('text/event-stream');
    expect(server.url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    await expect.poll(() => log.messages).toContain('prompt the mill turns');
  });

  it('returns the error answers of the server', async () => {
    const { server } = await startServer({ maxConcurrent: 1 });
    for (let time = 0; time < 3; time += 1) {
      const answer = await complete(server, '');
      expect(answer.status).toBe(400);
      if (time === 0) expect(await answer.text()).toBe('prompt is empty');
    }
    await expect(server.fetch('state')).rejects.toThrow('the path "state" does not begin with /');
  });

  it('says the last lines of a server that ends before it is ready', async () => {
    await expect(startServer({}, ['--fail'])).rejects.toThrow(
      /^the model process \(python3 \S+ \{port\} --fail, PID \d+\) exited with code 1; its last lines:\n(.|\n)*no such model/,
    );
  });

  it('says the last lines of a server that is late', async () => {
    await expect(startServer({ startTimeoutMs: 1_500 }, ['--hang'])).rejects.toThrow(
      'was not ready after 1500 ms (startTimeoutMs); its last lines:\nloading for ever',
    );
  });

  it('ends a start when its signal aborts', async () => {
    const server = createModelServer({ command: 'python3', args: [PROGRAM, '{port}', '--hang'] });
    const abort = new AbortController();
    const log = new RecordedLog();
    const start = caught(server.start({ log, signal: abort.signal }));
    await expect.poll(() => log.messages).toContain('loading for ever');
    abort.abort(new Error('given up'));
    expect(await start).toEqual(new Error('given up'));
    const [started] = log.entries;
    expect(isRunning(Number(Reflect.get(started?.fields ?? {}, 'pid')))).toBe(false);
  });

  it('ends a request when its signal aborts', async () => {
    const { server } = await startServer();
    const abort = new AbortController();
    const slow = caught(server.fetch('/slow', {}, { signal: abort.signal }));
    const answer = await server.fetch('/endless', {}, { signal: abort.signal });
    const reader = answer.body?.getReader();
    await reader?.read();
    abort.abort(new Error('not wanted'));
    expect(await slow).toEqual(new Error('not wanted'));
    await expect(reader?.read()).rejects.toThrow('not wanted');
    await expect.poll(() => readState(server)).toMatchObject({ cancelled: 1 });
  });

  it('waits for the reader of a stream, and ends it when the reader leaves', async () => {
    const { server } = await startServer({ maxConcurrent: 2 });
    const answer = await server.fetch('/endless');
    await answer.body?.getReader().read();
    let sent = -1;
    // The kernel's buffers are full when no more is sent.
    await expect
      .poll(
        async () => {
          const before = sent;
          ({ sent } = await readState(server));
          return sent === before;
        },
        { interval: 100 },
      )
      .toBe(true);
    expect(sent).toBeLessThan(32 * 1_048_576);
    for await (const _ of (await server.fetch('/endless')).body ?? []) break;
    await expect.poll(() => readState(server)).toMatchObject({ cancelled: 1 });
  });

  it('blames the only job that ran when it died, and is replaced', async () => {
    const { log, server } = await startServer();
    const { pid, url } = server;
    const error = await caught(server.fetch('/die', { method: 'POST' }));
    expect(error).toBeInstanceOf(ModelProcessError);
    expect(error).toMatchObject({
      blame: 'culprit',
      message: expect.stringMatching(/exited with code 7; its last lines:\nout of luck$/),
    });
    expect(await (await complete(server, 'again')).text()).toContain('again');
    expect(server.pid).not.toBe(pid);
    expect(server.url).not.toBe(url);
    expect(log.messages).toContain('model process ended, restarting');
  });

  it('lets several jobs run alone if it dies, also those whose answers have begun', async () => {
    const { server } = await startServer();
    const jobs = [new AbortController(), new AbortController()].map(({ signal }) => ({ signal }));
    const slow = caught(server.fetch('/slow', {}, jobs[0]));
    // Without a length, a cut answer looks complete.
    const plain = await server.fetch('/plain', {}, jobs[1]);
    process.kill(server.pid ?? 0, 'SIGKILL');
    expect(await slow).toMatchObject({ blame: 'suspect' });
    expect(await caught(plain.text())).toMatchObject({ blame: 'suspect' });
  });

  it('is replaced when it prints that it has lost its GPU context and fails a request', async () => {
    const { log, server } = await startServer();
    const { pid } = server;
    const words = 'CUDA error: device-side assert triggered';
    // The words of a request show nothing.
    const quoted = await server.fetch('/poison', { json: { prompt: words } });
    expect([quoted.status, server.pid]).toEqual([500, pid]);
    await caught(server.fetch('/poison', { method: 'POST' }));
    await expect.poll(() => server.pid !== undefined && server.pid !== pid).toBe(true);
    const ended = log.entries.find(({ message }) => message.startsWith('model process ended'));
    expect(ended?.fields).toMatchObject({
      reason: expect.stringMatching(/^has lost its GPU context: CUDA error: device-side assert/),
    });
  });

  it('fails the job whose request has cost it its GPU context with gpu_context_lost', async () => {
    const { server } = await startServer({ maxConcurrent: 2 });
    const [poisoned, other] = [new AbortController(), new AbortController()];
    const slow = caught(server.fetch('/slow', {}, { signal: other.signal }));
    const request = server.fetch('/poison', { method: 'POST' }, { signal: poisoned.signal });
    expect(retryAdvice(await caught(request))).toEqual({ kind: 'context_lost' });
    expect(retryAdvice(await slow)).toEqual({ kind: 'released', reason: 'neighbour' });
  });

  it('is replaced when it is not healthy', async () => {
    const { log, server } = await startServer({ hangTimeoutMs: 200 });
    const { pid } = server;
    await set(server, { healthy: false });
    await expect.poll(() => server.pid !== pid && server.pid !== undefined).toBe(true);
    const ended = log.entries.find(({ message }) => message.startsWith('model process ended'));
    expect(ended?.fields).toMatchObject({
      reason: expect.stringContaining('has not been healthy for 200 ms'),
    });
  });

  it('is left alone while requests run and it only does not answer', async () => {
    const { server } = await startServer({ hangTimeoutMs: 200 });
    const { pid } = server;
    const abort = new AbortController();
    const slow = caught(server.fetch('/slow', {}, { signal: abort.signal }));
    await set(server, { silent: true });
    await caught(server.fetch('/slow', {}, { signal: AbortSignal.timeout(600) }));
    expect(server.pid).toBe(pid);
    abort.abort();
    await slow;
    await expect.poll(() => server.pid === pid).toBe(false);
  });

  it('sleeps and wakes by requests; requests wait meanwhile', async () => {
    const { log, server } = await startServer({ sleep: '/sleep?level=1', wake: '/wake_up' });
    expect(await server.park()).toEqual({ way: 'hooks', bytes: 0 });
    const waiting = readState(server);
    await expect.poll(() => log.messages).toContain('POST /sleep?level=1');
    await server.wake();
    expect(await waiting).toMatchObject({ asleep: false });
  });

  it('sleeps by a function, which may tell the bytes', async () => {
    const { server } = await startServer({ sleep: async () => 123, wake: () => undefined });
    expect(await server.park()).toEqual({ way: 'hooks', bytes: 123 });
    expect(await server.wake()).toEqual({ way: 'hooks', bytes: 123 });
  });

  it('starts anew if it does not go to sleep', async () => {
    const options = { sleep: '/sleep', wake: '/wake_up', env: { BROKEN: '/sleep' } };
    const { log, server } = await startServer(options);
    expect(await server.park()).toEqual({ way: 'cold', bytes: 0 });
    const ended = log.entries.find(({ message }) => message.endsWith('could not be parked'));
    expect(ended?.fields).toEqual({ reason: 'POST /sleep of the model server answered 500: ' });
    await server.wake();
    expect(await (await complete(server, 'again')).text()).toContain('again');
  });

  it('is killed if it does not end after SIGTERM', async () => {
    const { server } = await startServer({ stopTimeoutMs: 500 }, ['--deaf']);
    const { pid } = server;
    await server.stop();
    expect(isRunning(pid ?? 0)).toBe(false);
    await expect(complete(server, 'late')).rejects.toThrow('stop() was called');
  });

  it('lets running requests end before it stops', async () => {
    const { server } = await startServer();
    const answer = await complete(server, 'the mill turns');
    const stopped = server.stop();
    expect(await answer.text()).toContain('turns');
    await stopped;
  });

  it('dies with a process that is killed', async () => {
    const code = `
      import { createModelServer } from '${resolve('src/process.ts')}';
      const server = createModelServer({ command: 'python3', args: ['${PROGRAM}', '{port}', '--deaf'] });
      await server.start();
      console.log(server.pid);
    `;
    const parent = spawn(process.execPath, ['--input-type=module', '-e', code], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const [line] = await once(parent.stdout, 'data');
    const pid = Number(String(line));
    expect(isRunning(pid)).toBe(true);
    parent.kill('SIGKILL');
    await expect.poll(() => isRunning(pid)).toBe(false);
  });

  it.each([
    [{ ready: 'health' }, 'ready is "health"; give a path that begins with /, or a function'],
    [{ sleep: '/sleep' }, 'wake is missing; give both sleep and wake'],
    [{ maxConcurrent: 0 }, 'maxConcurrent is 0; it must be a whole number from 1 to 10000'],
    [{ args: ['x', 1] as string[] }, 'args is ["x",1]; give an array of strings'],
  ])('refuses the options %j', (options, message) => {
    expect(() => createModelServer({ command: 'vllm', ...options })).toThrow(
      new TypeError(`createModelServer: ${message}`),
    );
  });
});
