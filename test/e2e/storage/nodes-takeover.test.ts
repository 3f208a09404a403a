// Schedules, flows, retries, dead letters, pauses, limits, tags and webhooks on several nodes: asked of a node that does
// not own the endpoint, and after its owner was killed.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Client, createClient, createPlatform, type Platform } from '../../../src/client.ts';
import type { Script, Step } from '../../support/handlers/api-script.ts';
import { WebhookReceiver } from '../../support/network/webhook-receiver.ts';
import { NodeProcesses } from '../../support/node-processes.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';
import { CommandRun } from '../cli/command-run.ts';

const COUNT = 3;
/** `limited` has a rate limit, and is paused as a whole. */
const ENDPOINTS = ['main', 'limited'];
const LIMIT_MS = 120_000;
const POLL_MS = 20;
const PATIENCE = { timeout: LIMIT_MS };
/** Longer than a takeover, as a rule. */
const RATE_LIMIT = { max: 2, perMs: 15_000 };
const EVERY_MS = 1_000;

const isLeftOut = leaveOutWithoutPostgres('test/e2e/storage/nodes-takeover.test.ts');

const quick: Script = { steps: [], answer: 'done' };
const failsIn = (onlyInAttempt: number): Step => ({
  ...{ do: 'throw', message: 'this step fails', onlyInAttempt },
});
/** The worker does not count such errors: it would slow down. */
const refuses: Step = { do: 'throw', as: 'non-retryable', message: 'no such model' };
const refusesIn = (onlyInAttempt: number): Step => ({ ...refuses, onlyInAttempt });
const failing: Script = { steps: [refuses] };

/** Also for hooks, in which vitest does not poll. @throws Error with the record */
async function untilStatus(client: Client, id: string, status: string): Promise<void> {
  const end = performance.now() + LIMIT_MS;
  for (;;) {
    const record = await client.status(id);
    if (record.status === status) return;
    if (performance.now() > end) throw new Error(`not ${status}: ${JSON.stringify(record)}`);
    await sleep(POLL_MS);
  }
}

describe.skipIf(isLeftOut)('features of jobs on three nodes', () => {
  let server: PostgresServer;
  let nodes: NodeProcesses;
  let folder: string;
  let receiver: WebhookReceiver;
  /** Of a node that does not own the endpoints. */
  let main: Client;
  let limited: Client;
  let platform: Platform;
  let env: Record<string, string>;

  const findOwner = async (): Promise<number> => {
    const owner = 'select url from node join shard on owner = node.id';
    return nodes.urls.indexOf(await server.query(owner));
  };

  const ask = (index: number) => {
    const { adminKey: key, url } = nodes.at(index);
    main = createClient({ url, key, endpoint: 'main' });
    limited = createClient({ url, key, endpoint: 'limited' });
    platform = createPlatform({ url, key });
    env = { MILLRACE_URL: url, MILLRACE_KEY: key };
  };

  /** A job waits until this opens it. */
  const createGate = (name: string) => {
    const file = join(folder, name);
    return { wait: { do: 'wait', file } as const, open: () => writeFile(file, '') };
  };

  const readWait = async (client: Client, id: string) => (await client.status(id)).waitReason?.code;
  const untilWaits = (client: Client, id: string, code: string) =>
    expect.poll(() => readWait(client, id), PATIENCE).toBe(code);
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'millrace-gates-'));
    receiver = await WebhookReceiver.start();
    server = await PostgresServer.start();
    const args = ['--allow-private-webhooks'];
    const parts = { store: server.url(), count: COUNT, shards: 1, endpoints: ENDPOINTS, args };
    nodes = await NodeProcesses.start(parts);
    const owner = await until(async () => {
      const found = await findOwner();
      return found >= 0 && { found };
    });
    const asked = (owner.found + 1) % COUNT;
    ask(asked);
    for (const endpoint of ENDPOINTS) {
      const worker = nodes.at(asked).startWorker(endpoint, 'api-script.ts');
      await worker.find(/connected/);
    }
  });
  afterAll(async () => {
    await nodes?.close();
    await server?.stop();
    await receiver?.[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  });

  describe('asked of a node that does not own the endpoint', () => {
    it('makes one job of each tick of a schedule, and lists, triggers and deletes it', async () => {
      const schedule = await platform.schedules.create({
        ...{ name: 'ticks', endpointId: 'main', every: EVERY_MS, maxJobs: 3, catchUp: 'all' },
        ...{ input: quick, policy: { tags: ['ticks'] } },
      });
      const read = () => platform.schedules.get(schedule.id);
      await expect.poll(async () => (await read()).status, PATIENCE).toBe('ended');
      const { jobs } = await main.jobs({ tags: ['ticks'] });
      const details = await Promise.all(jobs.map(({ id }) => main.details(id)));
      const ticks = details.map((job) => job.schedule?.tickAt ?? 0);
      const [last = 0] = ticks;
      expect(ticks).toEqual([last, last - EVERY_MS, last - 2 * EVERY_MS]);
      const { jobId } = await platform.schedules.trigger(schedule.id);
      await untilStatus(main, jobId, 'COMPLETED');
      for (const node of nodes.all) {
        const seen = createPlatform({ url: node.url, key: node.adminKey }).schedules;
        const page = await seen.page();
        expect(page.items).toMatchObject([{ name: 'ticks', jobs: 3, endpointName: 'main' }]);
      }
      await platform.schedules.delete(schedule.id);
      expect((await platform.schedules.page()).items).toEqual([]);
    });

    it('runs a flow, passes outputs on, and retries what has failed', async () => {
      const gate = createGate('flow');
      const flow = await main.flows.run({
        jobs: [
          { name: 'scene', input: { steps: [], answer: { seed: 7 } } },
          { name: 'print', input: { steps: [] }, after: [{ job: 'scene', as: 'answer' }] },
          {
            name: 'model',
            input: { steps: [failsIn(1), gate.wait] },
            policy: { retry: { maxAttempts: 1 } },
          },
          { name: 'report', input: quick, after: ['print', 'model'] },
        ],
      });
      const show = () => main.flows.show(flow.id);
      await expect.poll(show, PATIENCE).toMatchObject({
        ...{ status: 'FAILED', counts: { completed: 2, failed: 2, open: 0 } },
      });
      const print = flow.jobs.find(({ name }) => name === 'print')?.id ?? '';
      expect(await main.status(print)).toMatchObject({ output: { seed: 7 } });
      expect(await main.flows.retry(flow.id)).toEqual({ changed: 2 });
      await gate.open();
      await expect.poll(show, PATIENCE).toMatchObject({ status: 'COMPLETED', total: 4 });
      expect((await main.flows.list()).flows).toMatchObject([{ id: flow.id }]);
    });

    it('starts a job after its parent, and cancels those of a cancelled flow', async () => {
      const gate = createGate('parent');
      const { id: parent } = await main.run({ steps: [gate.wait] });
      const { id } = await main.run(quick, { after: [parent] });
      await untilWaits(main, id, 'waits_for_parent');
      expect(await main.details(parent)).toMatchObject({ children: [{ endpoint: 'main', id }] });
      await gate.open();
      await untilStatus(main, id, 'COMPLETED');
      const never = createGate('never');
      const flow = await main.flows.run({
        jobs: [
          { name: 'first', input: { steps: [never.wait] } },
          { name: 'second', input: quick, after: ['first'] },
        ],
      });
      expect(await main.flows.cancel(flow.id)).toEqual({ changed: 2 });
      await expect
        .poll(() => main.flows.show(flow.id), PATIENCE)
        .toMatchObject({ status: 'CANCELLED' });
    });

    it('retries by the policy of the job, and resubmits a failed job once', async () => {
      const retry = { backoff: 'list' as const, delaysMs: [1], maxAttempts: 3 };
      const { id } = await main.run({ steps: [failsIn(1), failsIn(2)] }, { policy: { retry } });
      expect(await main.wait(id)).toMatchObject({ status: 'COMPLETED', attempt: 3 });
      const { id: failed } = await main.run(failing, { policy: { tags: ['model'] } });
      expect(await main.wait(failed)).toMatchObject({ status: 'FAILED', attempt: 1 });
      const found = await platform.failedJobs({ text: 'no such model', tags: ['model'] });
      expect(found.jobs.map((job) => job.id)).toEqual([failed]);
      const [first] = await main.resubmit([failed]);
      const [second] = await main.resubmit([failed]);
      expect(first).toMatchObject({ retryOf: failed, isNew: true });
      expect(second).toEqual({ ...first, isNew: false });
      expect(await main.failedJob(failed)).toMatchObject({
        retriedAs: first && 'id' in first ? first.id : '',
      });
      expect(await main.deleteFailed([failed])).toBe(1);
      await expect(main.failedJob(failed)).rejects.toMatchObject({ problem: { status: 404 } });
    });

    it('holds back the jobs of a paused endpoint and of a paused group', async () => {
      await main.pause({ group: 'held', reason: 'moved' });
      await limited.pause();
      const { id: ofGroup } = await main.run(quick, { policy: { group: 'held' } });
      const { id: ofEndpoint } = await limited.run(quick);
      expect(await readWait(main, ofGroup)).toBe('group_paused');
      expect(await readWait(limited, ofEndpoint)).toBe('paused');
      // The group of others goes on.
      expect(await main.runsync(quick)).toMatchObject({ status: 'COMPLETED' });
      for (const node of nodes.all) {
        const seen = createClient({ url: node.url, key: node.adminKey, endpoint: 'main' });
        expect(await seen.pauses()).toMatchObject([{ group: 'held', reason: 'moved' }]);
      }
      expect(await main.status(ofGroup)).toMatchObject({ status: 'IN_QUEUE' });
      await main.resume({ group: 'held' });
      await limited.resume();
      await untilStatus(main, ofGroup, 'COMPLETED');
      await untilStatus(limited, ofEndpoint, 'COMPLETED');
    });

    it('starts no more jobs in a time than the endpoint allows', async () => {
      const rateLimit = { max: 2, perMs: 2_000 };
      await platform.endpoints.update('limited', { rateLimit });
      const ids: string[] = [];
      for (let n = 0; n < 5; n++) ids.push((await limited.run(quick)).id);
      const starts: number[] = [];
      for (const id of ids) {
        await untilStatus(limited, id, 'COMPLETED');
        starts.push((await limited.details(id)).startedAt ?? 0);
      }
      for (const [n, start] of starts.slice(0, -2).entries()) {
        expect((starts[n + 2] ?? 0) - start).toBeGreaterThanOrEqual(rateLimit.perMs);
      }
      await platform.endpoints.update('limited', { rateLimit: null });
    });

    it('finds, exports, cancels, retries and deletes jobs by tag', async () => {
      const never = createGate('never');
      const tags = ['bulk'];
      const failed: string[] = [];
      const policy = { tags };
      for (let n = 0; n < 4; n++) {
        failed.unshift((await main.run({ steps: [refusesIn(1)] }, { policy })).id);
      }
      const { id: last } = await main.run({ steps: [never.wait] }, { policy: { tags } });
      const ids = [last, ...failed];
      expect((await main.jobs({ tags })).jobs.map(({ id }) => id)).toEqual(ids);
      for (const id of failed) await untilStatus(main, id, 'FAILED');
      expect(await main.changeJobs('retry', { tags }, { dryRun: true })).toMatchObject({
        matched: 4,
      });
      expect(await main.changeJobs('retry', { tags })).toMatchObject({ matched: 4, changed: 4 });
      for (const id of failed) await untilStatus(main, id, 'COMPLETED');
      expect(await main.changeJobs('cancel', { tags })).toMatchObject({ matched: 1, changed: 1 });
      await untilStatus(main, last, 'CANCELLED');
      const exported = new CommandRun(['jobs', 'export', '--endpoint', 'main', '--tag', 'bulk'], {
        env,
        temporary: folder,
      });
      const { stdout } = await exported.ended;
      const lines = stdout
        .trim()
        .split('\n')
        .map((line): unknown => JSON.parse(line));
      expect(lines).toMatchObject(ids.map((id) => ({ id, tags, input: {} })));
      expect(await main.changeJobs('delete', { tags })).toMatchObject({ matched: 5, changed: 5 });
      expect((await main.jobs({ tags })).jobs).toEqual([]);
    });

    it('cancels the job of a client that has gone', async () => {
      const never = createGate('never');
      const gone = new AbortController();
      const tags = ['gone'];
      const call = main.runsync(
        { steps: [never.wait] },
        { cancelOnDisconnect: true, signal: gone.signal, policy: { tags } },
      );
      const id = await until(async () => {
        const [job] = (await main.jobs({ tags, status: 'IN_PROGRESS' })).jobs;
        return job?.id;
      });
      gone.abort();
      await expect(call).rejects.toThrow();
      await untilStatus(main, id, 'CANCELLED');
    });

    it('posts the records of all jobs to the webhook of the endpoint', async () => {
      await platform.endpoints.update('limited', { webhook: receiver.url });
      const { id } = await limited.run(quick);
      const own = await limited.run(quick, { webhook: `${receiver.url}/own` });
      const bodies = await until(() => receiver.posted.length >= 2 && receiver.posted);
      const seen = bodies.map(({ body, path }) => [path, JSON.parse(body).id]);
      expect(new Set(seen)).toEqual(
        new Set([
          ['/done', id],
          ['/done/own', own.id],
        ]),
      );
      await platform.endpoints.update('limited', { webhook: null });
    });
  });

  describe('after the owner was killed', () => {
    const gate = () => createGate('takeover');
    const ids = new Map<string, string>();
    const idOf = (name: string) => ids.get(name) ?? '';
    let scheduleId: string;
    let flowId: string;
    let resubmittedId: string | undefined;
    let refused = 0;

    const submit = async (name: string, client: Client, script: Script, options = {}) => {
      ids.set(name, (await client.run(script, options)).id);
    };

    /** Leaves each feature in the middle of something. */
    const prepare = async () => {
      const { id } = await platform.schedules.create({
        ...{ name: 'ticks', endpointId: 'main', every: EVERY_MS, catchUp: 'all' },
        ...{ input: quick, policy: { tags: ['all-ticks'] } },
      });
      scheduleId = id;
      const flow = await main.flows.run({
        jobs: [
          { name: 'scene', input: { steps: [gate().wait], answer: { seed: 7 } } },
          { name: 'print', input: { steps: [] }, after: [{ job: 'scene', as: 'answer' }] },
        ],
      });
      flowId = flow.id;
      for (const job of flow.jobs) ids.set(job.name, job.id);
      await untilStatus(main, idOf('scene'), 'IN_PROGRESS');
      await submit('child', main, quick, { after: [idOf('scene')] });
      const retry = { backoff: 'fixed', delayMs: 3_000, jitter: 0 };
      await submit('retried', main, { steps: [failsIn(1)] }, { policy: { retry } });
      await submit('dead', main, failing, { policy: { tags: ['dead'] } });
      await submit('resubmitted', main, failing);
      for (const name of ['dead', 'resubmitted']) await untilStatus(main, idOf(name), 'FAILED');
      const [again] = await main.resubmit([idOf('resubmitted')]);
      resubmittedId = again && 'id' in again ? again.id : undefined;
      // Its retention ends soon.
      await main.status(idOf('dead'), { ttlMs: 10_000 });
      await main.pause({ group: 'held' });
      await submit('held', main, quick, { policy: { group: 'held', tags: ['held'] } });
      await submit('cancelled', main, quick, { policy: { group: 'held', tags: ['cancelled'] } });
      await platform.endpoints.update('limited', { rateLimit: RATE_LIMIT, webhook: receiver.url });
      receiver.answer((response) => {
        refused += 1;
        response.writeHead(500).end();
      });
      for (const name of ['first', 'second', 'third']) await submit(name, limited, quick);
      await untilStatus(limited, idOf('second'), 'COMPLETED');
      await until(() => refused >= 2);
    };

    const killOwner = async () => {
      const owner = await findOwner();
      await nodes.at(owner).kill();
      const next = await until(async () => {
        const found = await findOwner();
        return found >= 0 && found !== owner && { found };
      });
      const left = [0, 1, 2].find((index) => index !== owner && index !== next.found) ?? 0;
      ask(left);
    };

    beforeAll(async () => {
      receiver.posted.length = 0;
      await prepare();
      const tags = ['listened'];
      // "gone" is the node, not the client.
      const call = main
        .runsync({ steps: [gate().wait] }, { cancelOnDisconnect: true, policy: { tags } })
        .catch(() => undefined);
      const job = await until(
        async () => (await main.jobs({ tags, status: 'IN_PROGRESS' })).jobs[0],
      );
      ids.set('listened', job.id);
      await killOwner();
      receiver.answer((response) => response.end());
      await gate().open();
      await call;
    });

    it('makes one job of each tick, also of those that no node was there for', async () => {
      const tags = ['all-ticks'];
      const count = async () => (await platform.schedules.get(scheduleId)).jobs;
      const before = await count();
      await expect.poll(count, PATIENCE).toBeGreaterThan(before + 2);
      await platform.schedules.update(scheduleId, { paused: true });
      const { jobs: made, skipped } = await platform.schedules.get(scheduleId);
      const { jobs } = await main.jobs({ tags, limit: 100 });
      const details = await Promise.all(jobs.map(({ id }) => main.details(id)));
      const ticks = details.map((job) => job.schedule?.tickAt ?? 0);
      const [last = 0] = ticks;
      expect(ticks).toEqual(ticks.map((_, n) => last - n * EVERY_MS));
      expect([made, skipped]).toEqual([ticks.length, { missed: 0, overlap: 0, queue_full: 0 }]);
    });

    it('runs the jobs of a flow whose parents end, with their outputs', async () => {
      expect(await main.wait(idOf('print'))).toMatchObject({ output: { seed: 7 } });
      await untilStatus(main, idOf('child'), 'COMPLETED');
      expect(await main.flows.show(flowId)).toMatchObject({
        ...{ status: 'COMPLETED', counts: { completed: 2, open: 0 } },
      });
    });

    it('retries jobs by their policy', async () => {
      expect(await main.wait(idOf('retried'))).toMatchObject({ status: 'COMPLETED', attempt: 2 });
      const { timeline } = await main.details(idOf('retried'));
      const failedAt = timeline.find(({ event }) => event === 'failed')?.at ?? 0;
      const startedAt = timeline.findLast(({ event }) => event === 'started')?.at ?? 0;
      expect(startedAt - failedAt).toBeGreaterThanOrEqual(3_000);
    });

    it('keeps dead letters, and resubmits none of them twice', async () => {
      const status = async () => main.status(idOf('dead')).catch(({ problem }) => problem.status);
      await expect.poll(status, PATIENCE).toBe(404);
      const { jobs } = await platform.failedJobs({ tags: ['dead'] });
      expect(jobs.map(({ id }) => id)).toEqual([idOf('dead')]);
      expect(await main.failedJob(idOf('dead'))).toMatchObject({
        ...{ input: failing, error: { message: 'no such model' } },
      });
      expect(await main.resubmit([idOf('resubmitted')])).toEqual([
        { retryOf: idOf('resubmitted'), id: resubmittedId, isNew: false },
      ]);
      expect(await main.resubmit([idOf('dead')])).toMatchObject([{ isNew: true }]);
    });

    it('holds back the jobs of a paused group until it is resumed', async () => {
      expect(await readWait(main, idOf('held'))).toBe('group_paused');
      expect(await main.changeJobs('cancel', { tags: ['cancelled'] })).toMatchObject({
        changed: 1,
      });
      await main.resume({ group: 'held' });
      await untilStatus(main, idOf('held'), 'COMPLETED');
      expect(await main.status(idOf('cancelled'))).toMatchObject({
        status: 'CANCELLED',
        attempt: 0,
      });
    });

    it('counts the starts before the takeover for the rate limit', async () => {
      await untilStatus(limited, idOf('third'), 'COMPLETED');
      const startOf = async (name: string) => (await limited.details(idOf(name))).startedAt ?? 0;
      const waited = (await startOf('third')) - (await startOf('first'));
      expect(waited).toBeGreaterThanOrEqual(RATE_LIMIT.perMs);
    });

    it('delivers the webhooks that the owner could not', async () => {
      const delivered = () => new Set(receiver.posted.map(({ body }) => JSON.parse(body).id));
      const wanted = new Set(['first', 'second', 'third'].map(idOf));
      await expect.poll(delivered, PATIENCE).toEqual(wanted);
    });

    it('does not cancel the job of a client whose node was killed', async () => {
      await untilStatus(main, idOf('listened'), 'COMPLETED');
    });
  });
});
