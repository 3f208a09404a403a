// hello, bye, and the order of jobs in takes.
import { describe, expect, it } from 'vitest';
import { CAPABILITIES, PROTOCOL_VERSION } from '../../../src/wire/link/worker-link.ts';
import { completed, ENDPOINT, failed, outcomeOf, refTo } from '../../support/queue-platform.ts';
import { USUAL_DEPLOYMENT } from '../../support/store/stored-jobs.ts';
import type { LinkStage } from './link.ts';

const trace = {
  traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
  tracestate: 'vendor=state',
};

export function describeVisits(stage: LinkStage): void {
  describe('the trace of a job', () => {
    it('is in the lease of each of its attempts, also after a requested retry', async () => {
      const { platform } = stage;
      const id = await platform.submitTraced(trace);
      const hand = await stage.worker();
      for (let attempt = 1; attempt <= 3; attempt++) {
        const lease = await hand.takeOne();
        expect(lease).toMatchObject({ attempt, ...trace });
        await hand.reportOne(outcomeOf(lease, 1, failed));
        await platform.clock.advance(60_000);
      }
      await platform.queue.jobs.retry({ endpointId: ENDPOINT, id });
      expect(await hand.takeOne()).toMatchObject({ attempt: 4, ...trace });
    });

    it('is not in the lease of a job without one', async () => {
      await stage.platform.submit();
      const lease = await (await stage.worker()).takeOne();
      expect(lease).not.toHaveProperty('traceparent');
      expect(lease).not.toHaveProperty('tracestate');
    });

    it('may be named by reports, without an effect', async () => {
      const { platform } = stage;
      const id = await platform.submitTraced(trace);
      const hand = await stage.worker();
      const report = outcomeOf(await hand.takeOne(), 1, completed, '1');
      const { traceparent } = trace;
      expect(await hand.reportOne({ ...report, traceparent })).toEqual({ answer: 'applied' });
      expect(await platform.record(id)).toMatchObject({ status: 'COMPLETED', output: 1 });
    });
  });

  describe('the input schema of a worker', () => {
    const sayHello = (more: object) => stage.hand().hello([], PROTOCOL_VERSION, more);
    const read = () => stage.platform.queue.inputSchema(ENDPOINT);
    const schemaOf = (title: string) => ({ type: 'object', title });
    const textOf = (title: string) => JSON.stringify(schemaOf(title));
    const deployVersion = (version: number) =>
      stage.platform.store.write((tx) => {
        const endpoint = tx.endpoint(ENDPOINT);
        if (!endpoint) throw new Error('no endpoint');
        const workers = { gpuTypeIds: [], workersMin: 0, workersMax: 1, idleTimeout: 5 };
        const scaler = { type: 'QUEUE_DELAY', seconds: 4 } as const;
        const kind = { name: 'e', type: 'QUEUE', templateId: 'tpl_1' } as const;
        const deployment = { ...USUAL_DEPLOYMENT, ...kind, ...workers, scaler, version };
        tx.putEndpoint({ ...endpoint, deployment });
      });

    it('is that of the last hello that names one, also after a restart', async () => {
      const none = { schema: null, version: null, updatedAt: null };
      expect(await read()).toEqual(none);
      await sayHello({ inputSchema: textOf('é') });
      const { updatedAt } = await read();
      expect(updatedAt).toBe(stage.platform.clock.now());
      await stage.platform.clock.advance(1_000);
      await sayHello({});
      await sayHello({ inputSchema: textOf('é') });
      expect(await read()).toEqual({ schema: schemaOf('é'), version: null, updatedAt });
      await stage.restart();
      await sayHello({ inputSchema: textOf('é') });
      expect(await read()).toEqual({ schema: schemaOf('é'), version: null, updatedAt });
      await sayHello({ inputSchema: textOf('b') });
      expect(await read()).toMatchObject({ schema: schemaOf('b') });
      await sayHello({ inputSchema: '' });
      expect(await read()).toEqual(none);
    });

    it('is kept for each version of the handler; that of the deployed version counts', async () => {
      await sayHello({ inputSchema: textOf('unversioned') });
      await sayHello({ inputSchema: textOf('two'), handlerVersion: 2 });
      await sayHello({ inputSchema: textOf('one'), handlerVersion: 1 });
      expect(await read()).toMatchObject({ schema: schemaOf('unversioned'), version: null });
      await deployVersion(2);
      expect(await read()).toMatchObject({ schema: schemaOf('two'), version: 2 });
      await deployVersion(3);
      expect(await read()).toEqual({ schema: null, version: 3, updatedAt: null });
    });

    it('is forgotten for all but some twenty versions', async () => {
      await sayHello({ inputSchema: textOf('unversioned') });
      for (let version = 1; version <= 30; version += 1) {
        await sayHello({ inputSchema: textOf(`${version}`), handlerVersion: version });
      }
      await sayHello({ inputSchema: textOf('1'), handlerVersion: 1 });
      const rows = await stage.platform.store.read((tx) =>
        tx.resources({ kind: 'input_schema', limit: 100 }),
      );
      expect(rows).toHaveLength(20);
      const positions = rows.map(({ position }) => position);
      expect([positions[0], ...positions.slice(-2)]).toEqual([30, 1, 0]);
    });
  });

  describe('the devices of a worker', () => {
    it('are stored as it names them, with the GPU type of the platform', async () => {
      const { platform } = stage;
      const gpu = { kind: 'gpu', index: 1, uuid: 'GPU-1', name: 'NVIDIA L4', memoryBytes: 2 ** 40 };
      const devices = [{ ...gpu, gpuTypeId: 'l4' }, gpu];
      const hand = await stage.worker();
      await hand.hello([], PROTOCOL_VERSION, { devices });
      const stored = await platform.store.read((tx) => tx.worker(ENDPOINT, hand.id));
      expect(stored?.devices).toEqual(devices);
    });
  });

  describe('the S3 configuration of a client', () => {
    it('is in the lease of each of its attempts and of no other job', async () => {
      const { platform } = stage;
      const s3Config = JSON.stringify({ bucketName: 'bücket', accessSecret: 's' });
      await platform.submitWithS3Config(s3Config);
      const hand = await stage.worker();
      for (let attempt = 1; attempt <= 2; attempt++) {
        const lease = await hand.takeOne();
        expect(lease).toMatchObject({ attempt, s3Config });
        await hand.reportOne(outcomeOf(lease, 1, failed));
        if (attempt === 1) await platform.clock.advance(60_000);
      }
      await platform.submit();
      expect(await hand.takeOne()).not.toHaveProperty('s3Config');
    });
  });

  describe('hello', () => {
    it('is answered with the platform’s intervals', async () => {
      expect(await stage.hand().hello()).toEqual({
        protocol: PROTOCOL_VERSION,
        capabilities: [...CAPABILITIES],
        leaseMs: 15_000,
        renewEveryMs: 5_000,
        takeWaitMs: 20_000,
      });
    });

    it('is accepted if it requires supported capabilities', async () => {
      const hello = stage.hand().hello([], PROTOCOL_VERSION, { requires: ['solo'] });
      expect(await hello).toMatchObject({ protocol: PROTOCOL_VERSION });
    });

    it('makes the crash report of an older incarnation a repetition', async () => {
      const { platform } = stage;
      const old = await stage.worker({ incarnation: 1 });
      const id = await platform.submit();
      await old.takeOne();
      const next = stage.hand({ incarnation: 2 });
      // Some carriers put both calls into one commit: neither may affect the leases of the other process.
      await Promise.all([next.hello(), old.bye('crashed')]);
      await old.bye('crashed');
      const lease = await next.takeOne();
      expect(lease).toMatchObject({ jobId: id, attempt: 2 });
      await old.bye('crashed');
      expect((await platform.job(id)).lease?.token).toBe(lease.token);
    });

    it('changes nothing if the incarnation is known', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker();
      const lease = await hand.takeOne();
      await hand.hello();
      expect((await platform.job(id)).lease?.token).toBe(lease.token);
    });

    it('transfers the outbox to the newer process, and a repetition without it ends nothing', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const lease = await (await stage.worker({ incarnation: 1 })).takeOne();
      const next = stage.hand({ incarnation: 2 });
      await next.hello([refTo(lease)]);
      await next.hello();
      expect(await platform.job(id)).toMatchObject({ status: 'IN_PROGRESS', failures: 0 });
      expect(await next.finish(lease, completed)).toEqual({ answer: 'applied' });
    });

    it('gives an outcome in the outbox leaseMs for its delivery, whatever its deadline', async () => {
      const { platform } = stage;
      const id = await platform.submit({ executionTimeout: 1_000 });
      const lease = await (await stage.worker({ incarnation: 1 })).takeOne();
      await platform.clock.advance(900);
      await stage.hand({ incarnation: 2 }).hello([refTo(lease)]);
      await platform.clock.advance(14_000);
      expect(await platform.job(id)).toMatchObject({ status: 'IN_PROGRESS' });
      await platform.clock.advance(1_100);
      expect(await platform.job(id)).toMatchObject({ status: 'IN_QUEUE', failures: 1 });
    });
  });

  describe('bye', () => {
    it('releases all leases of a drained worker uncounted, also those that it never received', async () => {
      const { platform } = stage;
      const ids = [await platform.submit(), await platform.submit()];
      const hand = await stage.worker();
      await hand.take({ max: 2 });
      await hand.bye('drained');
      for (const id of ids) {
        expect(await platform.job(id)).toMatchObject({
          status: 'IN_QUEUE',
          failures: 0,
          releases: 1,
        });
      }
    });

    it('keeps jobs in the outbox for the successor', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const old = await stage.worker({ incarnation: 1 });
      const lease = await old.takeOne();
      await old.bye('crashed', [refTo(lease)]);
      expect((await platform.job(id)).status).toBe('IN_PROGRESS');
      const next = stage.hand({ incarnation: 2 });
      await next.hello([refTo(lease)]);
      expect((await platform.health()).workers).toEqual({ idle: 0, running: 1 });
      expect(await next.finish(lease, completed)).toEqual({ answer: 'applied' });
      expect((await platform.health()).workers).toEqual({ idle: 1, running: 0 });
    });

    it('ends an open take without jobs', async () => {
      const { platform } = stage;
      const hand = await stage.worker();
      const take = await platform.park('take', () => hand.take({ waitMs: 20_000 }));
      await hand.bye('drained');
      expect(await take.answer).toEqual([]);
      const id = await platform.submit();
      expect((await platform.job(id)).status).toBe('IN_QUEUE');
    });
  });

  describe('the order of a queue', () => {
    it('has higher priorities first', async () => {
      const { platform } = stage;
      const low = await platform.submit();
      const high = await platform.submit({ priority: 9 });
      const middle = await platform.submit({ priority: 5 });
      const leases = await (await stage.worker()).take({ max: 3 });
      expect(leases.map(({ jobId }) => jobId)).toEqual([high, middle, low]);
    });

    it('contains a delayed job only after its delay, and then wakes a take', async () => {
      const { platform } = stage;
      const id = await platform.submit({ delay: 3_000 });
      const hand = await stage.worker();
      const take = await platform.park('take', () => hand.take({ waitMs: 20_000 }));
      await platform.clock.advance(2_999);
      expect(take.hasEnded).toBe(false);
      await platform.clock.advance(1);
      expect(await take.answer).toMatchObject([{ jobId: id }]);
    });

    it('keeps the place of a requeued job', async () => {
      const { platform } = stage;
      const first = await platform.submit();
      const hand = await stage.worker();
      const lease = await hand.takeOne();
      await platform.submit();
      await hand.finish(lease, { kind: 'released', reason: 'neighbour' });
      expect(await hand.takeOne()).toMatchObject({ jobId: first, attempt: 2 });
    });

    it('contains a failed job again after its wait, ahead of later ones', async () => {
      const { platform } = stage;
      const first = await platform.submit();
      const hand = await stage.worker();
      await hand.finish(await hand.takeOne(), failed);
      const second = await platform.submit();
      await platform.submit();
      expect(await hand.takeOne()).toMatchObject({ jobId: second });
      await platform.clock.advance(1_000);
      expect(await hand.takeOne()).toMatchObject({ jobId: first, attempt: 2 });
    });
  });

  describe('a lease', () => {
    it('contains everything needed to run the job, and its unchanged input', async () => {
      const { platform } = stage;
      const input = Buffer.from('{ "é" :\t"\\u00e9 😀 \\ud83d\\ude00",  "n": 1e2 }');
      const id = await platform.submit({ executionTimeout: 7_000 }, input);
      const lease = await (await stage.worker()).takeOne();
      expect(lease).toMatchObject({
        jobId: id,
        attempt: 1,
        executionTimeoutMs: 7_000,
        solo: false,
      });
      expect(lease.submittedAt).toBe(platform.clock.now());
      expect(Buffer.from(lease.input).equals(input)).toBe(true);
    });

    it('carries an input of 10 MB and an output of 20 MB', async () => {
      const { platform } = stage;
      const input = Buffer.from(`{"text":"${'ä'.repeat(5 * 1_048_576 - 6)}"}`);
      const output = `"${'ö'.repeat(10 * 1_048_576 - 1)}"`;
      const id = await platform.submit({}, input);
      const hand = await stage.worker();
      const lease = await hand.takeOne();
      expect(Buffer.from(lease.input).equals(input)).toBe(true);
      const reply = await hand.reportOne(outcomeOf(lease, 1, completed, output));
      expect(reply).toEqual({ answer: 'applied' });
      const stored = await platform.store.read((tx) => tx.output({ endpointId: 'e', id }));
      expect(Buffer.from(stored ?? []).equals(Buffer.from(output))).toBe(true);
    });
  });
}
