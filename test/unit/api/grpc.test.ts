// The gRPC port as workers in other languages see it: without our link, against a real queue.
import { createRequire } from 'node:module';
import { Client, credentials, type StatusObject, status } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { protoPath } from 'grpc-health-check';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createGrpcServer } from '../../../src/api/grpc/server.ts';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLog } from '../../../src/base/log.ts';
import { createGrpcLink } from '../../../src/transport/grpc/grpc-link.ts';
import type { WorkerBye, WorkerLink } from '../../../src/wire/link/worker-link.ts';
import { METADATA, PROTO_OPTIONS, SERVICE_NAME } from '../../../src/wire/link/worker-stream.ts';
import { ENDPOINT, type Platform, startPlatform, submitJob } from '../../support/api/platform.ts';
import { RawStream } from '../../support/network/raw-stream.ts';

const WORKER = { workerId: 'w9', incarnation: 3 };
const HELLO = { ...WORKER, protocol: 1, version: '1', slots: 4, devices: [], outbox: [] };
const credit = (rest: object = {}) => ({
  ...{ ...WORKER, takeId: crypto.randomUUID(), max: 4, waitMs: 0, held: [] },
  ...rest,
});

interface Port {
  platform: Platform;
  url: string;
  crashes: WorkerBye[];
  open: (metadata?: Record<string, string>) => RawStream;
  /** One that has said hello, under call 1. */
  greet: () => Promise<RawStream>;
  close: () => Promise<void>;
}

async function startPort(change: (link: WorkerLink) => WorkerLink = (link) => link): Promise<Port> {
  const platform = await startPlatform();
  const { endpoints, keys, queue } = platform;
  const crashes: WorkerBye[] = [];
  const server = createGrpcServer({
    ...{ keys, endpoints, clock: systemClock, log: silentLog, host: '127.0.0.1', port: 0 },
    linkTo: (id) => (id === ENDPOINT ? change(queue.link(id)) : undefined),
    noteCrash: (_endpoint, bye) => crashes.push(bye),
    isClosing: () => queue.isClosing,
  });
  const { url } = await server.start();
  const streams: RawStream[] = [];
  const open = (metadata: Record<string, string> = {}) => {
    const named = { authorization: `Bearer ${platform.worker}`, [METADATA.endpoint]: ENDPOINT };
    const stream = new RawStream(url, { ...named, ...metadata });
    streams.push(stream);
    return stream;
  };
  const greet = async () => {
    const stream = open();
    expect(await stream.ask({ call: 1, hello: HELLO })).toMatchObject({ kind: 'welcome' });
    return stream;
  };
  const close = async () => {
    await queue.close();
    await server.close();
  };
  onTestFinished(async () => {
    for (const stream of streams) stream.close();
    await close();
  });
  return { platform, url, crashes, open, greet, close };
}

async function statusOf(stream: RawStream): Promise<Pick<StatusObject, 'code' | 'details'>> {
  const { code, details } = await stream.status;
  return { code, details };
}

describe('a stream', () => {
  it('carries a worker from hello to bye', async () => {
    const { platform, open } = await startPort();
    const id = await submitJob(platform, { input: { n: 1 } });
    const stream = open();
    expect(await stream.ask({ call: 1, hello: HELLO })).toMatchObject({
      call: 1,
      welcome: { protocol: 1, leaseMs: 15_000, capabilities: expect.arrayContaining(['solo']) },
    });
    const given = await stream.ask({ call: 2, credit: credit() });
    expect(given).toMatchObject({
      call: 2,
      leases: {
        leases: [{ jobId: id, attempt: 1, bodyBytes: 7 }],
        payload: Buffer.from('{"n":1}'),
      },
    });
    const [lease] = Object(given['leases']).leases;
    const report = {
      ...{ jobId: id, attempt: 1, token: lease.token, seq: 1, kind: 'outcome', bodyBytes: 4 },
      outcome: { kind: 'completed', executionMs: 1, output: 'value' },
    };
    const reports = { ...WORKER, reports: [report], payload: Buffer.from('true') };
    expect(await stream.ask({ call: 3, reports })).toMatchObject({
      reportAnswers: { answers: [{ answer: 'applied' }] },
    });
    const bye = { ...WORKER, reason: 'drained', outbox: [] };
    expect(await stream.ask({ call: 4, bye })).toMatchObject({ call: 4, kind: 'goodbye' });
    const record = await platform.call(`/v2/${ENDPOINT}/status/${id}`);
    expect(await record.json()).toMatchObject({ status: 'COMPLETED', output: true });
  });

  it('gives no job to an open take whose key is revoked', async () => {
    const { open, platform } = await startPort();
    const { holder, key } = await platform.keys.issue({ name: 'w', scopes: ['worker'] });
    const stream = open({ authorization: `Bearer ${key}` });
    await stream.ask({ call: 1, hello: HELLO });
    const take = stream.ask({ call: 2, credit: { ...credit(), waitMs: 20_000 } });
    const renewal = stream.ask({ call: 3, renew: { ...WORKER, waitMs: 0, leases: [] } });
    // The first answer is that to the second call: the take is open by now.
    expect(await take).toMatchObject({ call: 3 });
    await platform.keys.remove(holder.keyId);
    const id = await submitJob(platform);

    expect(await renewal).toMatchObject({ call: 2, leases: { leases: [] } });
    const record = await platform.call(`/v2/${ENDPOINT}/status/${id}`);
    expect(await record.json()).toMatchObject({ status: 'IN_QUEUE' });
  });

  it('carries payloads of several pieces unchanged in both directions', async () => {
    const { platform, url } = await startPort();
    const text = Array.from({ length: 150_000 }, (_, n) => n).join(',');
    const key = platform.worker;
    const link = createGrpcLink({ url, endpointId: ENDPOINT, key, log: silentLog });
    onTestFinished(() => link.close());
    await link.hello(HELLO);
    const taken = link.take(credit({ waitMs: 5_000 }), new AbortController().signal);
    const id = await submitJob(platform, { input: { text } });
    const [lease] = await taken;
    expect(Buffer.from(lease?.input ?? []).toString()).toBe(JSON.stringify({ text }));
    const body = Buffer.from(JSON.stringify(text));
    const base = { jobId: id, attempt: 1, token: lease?.token ?? '', seq: 1 };
    const outcome = { kind: 'completed', executionMs: 1, output: 'value' } as const;
    await link.report({ ...WORKER, reports: [{ ...base, kind: 'outcome', outcome, body }] });
    const record = await platform.call(`/v2/${ENDPOINT}/status/${id}`);
    expect(Object(await record.json()).output).toBe(text);
  });

  it('pushes a lease as soon as its job arrives, and a cancellation as soon as it is requested', async () => {
    const { platform, greet } = await startPort();
    const stream = await greet();
    await stream.send({ call: 2, credit: credit({ waitMs: 20_000 }) });
    await stream.send({ call: 3, renew: { ...WORKER, waitMs: 20_000, leases: [] } });
    const id = await submitJob(platform);
    expect(await stream.next()).toMatchObject({ call: 2, leases: { leases: [{ jobId: id }] } });
    await platform.post(`/v2/${ENDPOINT}/cancel/${id}`, {});
    expect(await stream.next()).toMatchObject({
      call: 3,
      renewed: { ended: [{ jobId: id, verdict: 'cancelled' }] },
    });
  });

  it('accepts reports in pieces, with other calls between them', async () => {
    const { platform, greet } = await startPort();
    const id = await submitJob(platform);
    const stream = await greet();
    const given = await stream.ask({ call: 2, credit: credit() });
    const [lease] = Object(given['leases']).leases;
    const report = {
      ...{ jobId: id, attempt: 1, token: lease.token, seq: 1, kind: 'outcome', bodyBytes: 6 },
      outcome: { kind: 'completed', executionMs: 1, output: 'value' },
    };
    await stream.send({
      call: 3,
      reports: { ...WORKER, reports: [report], payload: Buffer.from('"a') },
    });
    await stream.send({ call: 3, piece: { payload: Buffer.from('bc') } });
    const renew = { ...WORKER, waitMs: 0, leases: [] };
    expect(await stream.ask({ call: 4, renew })).toMatchObject({ call: 4, kind: 'renewed' });
    const last = { call: 3, piece: { payload: Buffer.from('d"') } };
    expect(await stream.ask(last)).toMatchObject({ call: 3, kind: 'reportAnswers' });
    const record = await platform.call(`/v2/${ENDPOINT}/status/${id}`);
    expect(await record.json()).toMatchObject({ output: 'abcd' });
  });

  it('accepts an output of 20 MB in one message', async () => {
    const { platform, greet } = await startPort();
    const id = await submitJob(platform);
    const stream = await greet();
    const given = await stream.ask({ call: 2, credit: credit() });
    const [lease] = Object(given['leases']).leases;
    const payload = Buffer.from(JSON.stringify('x'.repeat(20 * 1_048_576 - 2)));
    const report = {
      ...{ jobId: id, attempt: 1, token: lease.token, seq: 1, kind: 'outcome' },
      bodyBytes: payload.length,
      outcome: { kind: 'completed', executionMs: 1, output: 'value' },
    };
    const reports = { ...WORKER, reports: [report], payload };
    expect(await stream.ask({ call: 3, reports })).toMatchObject({
      reportAnswers: { answers: [{ answer: 'applied' }] },
    });
  });

  it('treats an optional member with its default value as absent', async () => {
    const { platform, greet } = await startPort();
    const id = await submitJob(platform);
    const stream = await greet();
    const given = await stream.ask({ call: 2, credit: credit() });
    const [lease] = Object(given['leases']).leases;
    const report = {
      ...{ jobId: id, attempt: 1, token: lease.token, seq: 1, kind: 'outcome', bodyBytes: 4 },
      ...{ traceparent: '', recycle: false },
      outcome: { kind: 'completed', executionMs: 1, output: 'value' },
    };
    const reports = { ...WORKER, reports: [report], payload: Buffer.from('true') };
    expect(await stream.ask({ call: 3, reports })).toMatchObject({
      reportAnswers: { answers: [{ answer: 'applied' }] },
    });
  });

  it('cancels a take on request and answers it without jobs', async () => {
    const { greet } = await startPort();
    const stream = await greet();
    await stream.send({ call: 2, credit: credit({ waitMs: 20_000 }) });
    await stream.send({ call: 2, abort: {} });
    expect(await stream.next()).toMatchObject({ call: 2, leases: { leases: [] } });
  });

  it('ends its open calls when it ends', async () => {
    let gone: (() => void) | undefined;
    const aborted = new Promise<void>((resolve) => {
      gone = resolve;
    });
    const { greet } = await startPort((link) => ({
      ...link,
      take: (request, signal) => {
        signal.addEventListener('abort', () => gone?.());
        return link.take(request, signal);
      },
    }));
    const stream = await greet();
    await stream.send({ call: 2, credit: credit({ waitMs: 20_000 }) });
    await stream.ask({ call: 3, renew: { ...WORKER, waitMs: 0, leases: [] } });
    stream.close();
    await aborted;
  });

  it('ends when its calls are answered if the worker half-closes it', async () => {
    const { greet } = await startPort();
    const stream = await greet();
    await stream.send({ call: 2, bye: { ...WORKER, reason: 'drained', outbox: [] } });
    stream.call.end();
    expect(await stream.next()).toMatchObject({ kind: 'goodbye' });
    expect(await statusOf(stream)).toMatchObject({ code: status.OK });
  });

  it('ends if the worker half-closes it within a payload', async () => {
    const { greet } = await startPort();
    const stream = await greet();
    const report = { jobId: 'j', attempt: 1, token: 't', seq: 1, kind: 'log', bodyBytes: 9 };
    const reports = { ...WORKER, reports: [report], payload: Buffer.from('half') };
    await stream.send({ call: 2, reports });
    stream.call.end();
    expect(await statusOf(stream)).toMatchObject({ code: status.OK });
  });

  it('ends with UNAVAILABLE and a retry delay when the platform stops', async () => {
    const { close, greet } = await startPort();
    const stream = await greet();
    await stream.send({ call: 2, credit: credit({ waitMs: 20_000 }) });
    await Promise.all([close(), stream.status]);
    const { code, metadata } = await stream.status;
    expect(code).toBe(status.UNAVAILABLE);
    expect(metadata.get(METADATA.retryAfterMs)).toEqual(['1000']);
  });

  it('reports a crash that the supervisor reported', async () => {
    const { crashes, greet } = await startPort();
    const stream = await greet();
    const bye = { ...WORKER, reason: 'crashed', outbox: [], detail: 'SIGSEGV' };
    await stream.ask({ call: 2, bye });
    expect(crashes).toMatchObject([{ workerId: 'w9', reason: 'crashed', detail: 'SIGSEGV' }]);
  });

  it('reports a crash even if the next process has said hello first', async () => {
    const { crashes, greet } = await startPort();
    const stream = await greet();
    await stream.ask({ call: 2, hello: { ...HELLO, incarnation: 4 } });
    const bye = { ...WORKER, reason: 'crashed', outbox: [], detail: 'SIGABRT' };
    expect(await stream.ask({ call: 3, bye })).toMatchObject({ kind: 'goodbye' });
    expect(crashes).toMatchObject([{ incarnation: 3, detail: 'SIGABRT' }]);
  });
});

describe('a stream by name', () => {
  it('reaches its endpoint', async () => {
    const { open, platform } = await startPort();
    await platform.endpoints.update('owner', ENDPOINT, { name: 'the-demo' });
    const stream = open({ [METADATA.endpoint]: 'the-demo' });
    expect(await stream.ask({ call: 1, hello: HELLO })).toMatchObject({ kind: 'welcome' });
  });
});

describe('a stream is refused', () => {
  const cases: [string, (platform: Platform) => Record<string, string>, status, RegExp][] = [
    [
      'with an unknown key',
      () => ({ authorization: 'Bearer mr_no' }),
      status.UNAUTHENTICATED,
      /API key/,
    ],
    [
      'for an endpoint that is not there',
      ({ admin }) => ({ authorization: admin, [METADATA.endpoint]: 'other' }),
      status.NOT_FOUND,
      /other/,
    ],
    [
      'without an endpoint',
      () => ({ [METADATA.endpoint]: '%zz' }),
      status.INVALID_ARGUMENT,
      /endpoint/,
    ],
  ];

  it.each(cases)('%s', async (_name, metadata, code, details) => {
    const { open, platform } = await startPort();
    expect(await statusOf(open(metadata(platform)))).toEqual({
      code,
      details: expect.stringMatching(details),
    });
  });

  it('with a key of another scope', async () => {
    const { open, platform } = await startPort();
    const { key } = await platform.keys.issue({ name: 'client', scopes: ['jobs:write'] });
    const stream = open({ authorization: `Bearer ${key}` });
    expect(await statusOf(stream)).toMatchObject({ code: status.PERMISSION_DENIED });
  });

  it('without a key', async () => {
    const { url } = await startPort();
    const stream = new RawStream(url, { [METADATA.endpoint]: ENDPOINT });
    onTestFinished(() => stream.close());
    expect(await statusOf(stream)).toMatchObject({ code: status.UNAUTHENTICATED });
  });
});

describe('a call is refused', () => {
  it('when its content is invalid, with the path', async () => {
    const { greet } = await startPort();
    const stream = await greet();
    expect(await stream.ask({ call: 2, credit: credit({ max: 0 }) })).toMatchObject({
      call: 2,
      refusal: { code: 'invalid', detail: expect.stringContaining('max: ') },
    });
  });

  it('when the worker has not said hello', async () => {
    const { open } = await startPort();
    expect(await open().ask({ call: 1, credit: credit() })).toMatchObject({
      refusal: { code: 'unknown_worker' },
    });
  });

  it('when its kind is newer than the platform', async () => {
    const { greet } = await startPort();
    expect(await (await greet()).ask({ call: 2 })).toMatchObject({
      call: 2,
      refusal: { code: 'invalid' },
    });
  });

  it('with a key of another user, as if there were no such endpoint', async () => {
    const { open, platform } = await startPort();
    const { key } = await platform.keys.issue({ name: 'b', scopes: ['admin'], userId: 'bob' });
    const authorization = `Bearer ${key}`;
    const missing = open({ authorization, [METADATA.endpoint]: 'elsewhere' });
    const own = await statusOf(open({ authorization }));
    const other = await statusOf(missing);
    expect(own.code).toBe(status.NOT_FOUND);
    expect(own).toEqual({ ...other, details: other.details.replace('elsewhere', ENDPOINT) });
  });

  it('when the key has expired since the stream was opened', async () => {
    const { open, platform } = await startPort();
    const grant = { name: 'brief', scopes: ['worker'], expiresAt: Date.now() + 60_000 };
    const { key } = await platform.keys.issue(grant);
    const stream = open({ authorization: `Bearer ${key}` });
    expect(await stream.ask({ call: 1, hello: HELLO })).toMatchObject({ kind: 'welcome' });
    await platform.keys.importKey(key, { ...grant, expiresAt: 1 });
    expect(await stream.ask({ call: 2, credit: credit() })).toMatchObject({
      refusal: { code: 'unauthorized' },
    });
  });

  it('when the key has been revoked since the stream was opened', async () => {
    const { open, platform } = await startPort();
    const { holder, key } = await platform.keys.issue({ name: 'w', scopes: ['worker'] });
    const stream = open({ authorization: key });
    expect(await stream.ask({ call: 1, hello: HELLO })).toMatchObject({ kind: 'welcome' });
    await platform.keys.remove(holder.keyId);
    const refused = await stream.ask({ call: 2, credit: credit() });
    expect(refused).toMatchObject({ call: 2, refusal: { code: 'unauthorized' } });
  });

  it('without showing internal errors', async () => {
    const { greet } = await startPort((link) => ({
      ...link,
      take: () => Promise.reject(new Error('the secret of the house')),
    }));
    const refused = await (await greet()).ask({ call: 2, credit: credit() });
    expect(refused).toMatchObject({ refusal: { code: 'unavailable' } });
    expect(JSON.stringify(refused)).not.toContain('secret');
  });

  it('when it names more leases than the limit', async () => {
    const { greet } = await startPort();
    const leases = Array.from({ length: 40_001 }, () => ({ jobId: 'j', token: 't' }));
    expect(
      await (await greet()).ask({ call: 2, renew: { ...WORKER, waitMs: 0, leases } }),
    ).toMatchObject({
      refusal: { code: 'invalid', detail: expect.stringMatching(/leases.* 10000/) },
    });
  });

  it('when its payload is larger than the limit, before it has arrived', async () => {
    const { greet } = await startPort();
    const stream = await greet();
    const report = { jobId: 'j', attempt: 1, token: 't', seq: 1, kind: 'log', bodyBytes: 2 ** 30 };
    const reports = { ...WORKER, reports: [report], payload: Buffer.from('x') };
    expect(await stream.ask({ call: 2, reports })).toMatchObject({ refusal: { code: 'invalid' } });
    // What was on its way is passed over.
    await stream.send({ call: 2, piece: { payload: Buffer.from('yz') } });
    const renew = { ...WORKER, waitMs: 0, leases: [] };
    expect(await stream.ask({ call: 3, renew })).toMatchObject({ call: 3, kind: 'renewed' });
  });

  it('when earlier reports use the whole budget', async () => {
    const { greet } = await startPort();
    const stream = await greet();
    const report = {
      jobId: 'j',
      attempt: 1,
      token: 't',
      seq: 1,
      kind: 'log',
      bodyBytes: 40_000_000,
    };
    const reports = { ...WORKER, reports: [report], payload: Buffer.from('x') };
    await stream.send({ call: 2, reports });
    expect(await stream.ask({ call: 3, reports })).toMatchObject({
      call: 3,
      refusal: { code: 'unavailable' },
    });
  });
});

describe('a peer that violates the protocol', () => {
  it('is disconnected if it has too many open calls', async () => {
    const { greet } = await startPort();
    const stream = await greet();
    const renew = { ...WORKER, waitMs: 5_000, leases: [] };
    await stream.send(...Array.from({ length: 200 }, (_, n) => ({ call: n + 2, renew })));
    expect(await statusOf(stream)).toMatchObject({ code: status.RESOURCE_EXHAUSTED });
  });

  it('is disconnected if it sends more than it announced', async () => {
    const { greet } = await startPort();
    const stream = await greet();
    const report = { jobId: 'j', attempt: 1, token: 't', seq: 1, kind: 'log', bodyBytes: 2 };
    const reports = { ...WORKER, reports: [report], payload: Buffer.from('xyz') };
    await stream.send({ call: 2, reports });
    expect(await statusOf(stream)).toMatchObject({ code: status.INVALID_ARGUMENT });
  });

  it('gets no further leases if it does not read', async () => {
    let takes = 0;
    const { greet, platform } = await startPort((link) => ({
      ...link,
      take: (request, signal) => {
        takes++;
        return link.take(request, signal);
      },
    }));
    const large = { input: { text: 'x'.repeat(3_000_000) } };
    for (let i = 0; i < 2; i++) await submitJob(platform, large);
    const stream = await greet();
    stream.call.pause();
    await stream.send({ call: 2, credit: credit({ max: 1 }) });
    await expect.poll(() => takes).toBe(1);
    // Answered over HTTP, so that what was asked before has had its turn.
    const letHappen = async () => {
      for (let i = 0; i < 20; i++) await platform.call('/healthz');
    };
    await letHappen();
    await stream.send({ call: 3, credit: credit({ max: 1 }) });
    await stream.send({ call: 4, renew: { ...WORKER, waitMs: 0, leases: [] } });
    await letHappen();
    expect(takes).toBe(1);
    stream.call.resume();
    await expect.poll(() => takes).toBe(2);
  });
});

/** A call without a stream, as tools make them. */
function askOnce(client: Client, path: string, method: Method, request: object): Promise<object> {
  return new Promise((resolve, reject) => {
    const { requestSerialize, responseDeserialize } = method;
    client.makeUnaryRequest(
      path,
      requestSerialize,
      responseDeserialize,
      request,
      (error, answer) => {
        if (error || !answer) reject(error);
        else resolve(answer);
      },
    );
  });
}

interface Method {
  requestSerialize: (value: object) => Buffer;
  responseDeserialize: (bytes: Buffer) => object;
}

describe('for tools, the port', () => {
  it('answers the standard health service, without a key', async () => {
    const { close, url } = await startPort();
    const health = loadSync(protoPath, PROTO_OPTIONS)['grpc.health.v1.Health'];
    const method = health && !('format' in health) ? health['Check'] : undefined;
    if (!method) throw new Error('the health service has no Check');
    const client = new Client(new URL(url).host, credentials.createInsecure());
    onTestFinished(() => client.close());
    for (const service of ['', SERVICE_NAME]) {
      const answer = await askOnce(client, method.path, method, { service });
      expect(answer).toEqual({ status: 'SERVING' });
    }
    const unknown = askOnce(client, method.path, method, { service: 'other' });
    await expect(unknown).rejects.toMatchObject({ code: status.NOT_FOUND });
    await close();
    await expect(askOnce(client, method.path, method, {})).rejects.toMatchObject({
      code: status.UNAVAILABLE,
    });
  });

  it('notifies health watchers when it stops', async () => {
    const { close, url } = await startPort();
    const health = loadSync(protoPath, PROTO_OPTIONS)['grpc.health.v1.Health'];
    const method = health && !('format' in health) ? health['Watch'] : undefined;
    if (!method) throw new Error('the health service has no Watch');
    const client = new Client(new URL(url).host, credentials.createInsecure());
    onTestFinished(() => client.close());
    const { path, requestSerialize, responseDeserialize } = method;
    const request = { service: SERVICE_NAME };
    const watch = client.makeServerStreamRequest(
      ...([path, requestSerialize, responseDeserialize, request] as const),
    );
    watch.on('error', () => {});
    const seen: object[] = [];
    watch.on('data', (answer: object) => seen.push(answer));
    await expect.poll(() => seen).toEqual([{ status: 'SERVING' }]);
    await Promise.all([
      close(),
      expect.poll(() => seen).toEqual([{ status: 'SERVING' }, { status: 'NOT_SERVING' }]),
    ]);
  });

  it('lists and describes its services by reflection', async () => {
    const { url } = await startPort();
    const answers = await reflect(url, [
      { listServices: '' },
      { fileContainingSymbol: SERVICE_NAME },
    ]);
    const [list, file] = answers.map((answer) => Object(answer));
    const names = list.listServicesResponse.service.map(({ name }: { name: string }) => name);
    expect(names).toEqual(expect.arrayContaining([SERVICE_NAME, 'grpc.health.v1.Health']));
    const [described] = file.fileDescriptorResponse.fileDescriptorProto;
    expect(described.toString('latin1')).toContain('ToPlatform');
  });
});

/** The answers of the standard service, in the order of the questions. */
async function reflect(url: string, questions: object[]): Promise<object[]> {
  const path = createRequire(import.meta.url).resolve(
    '@grpc/reflection/build/proto/grpc/reflection/v1/reflection.proto',
  );
  const service = loadSync(path, PROTO_OPTIONS)['grpc.reflection.v1.ServerReflection'];
  const method = service && !('format' in service) ? service['ServerReflectionInfo'] : undefined;
  if (!method) throw new Error('the reflection service has no such method');
  const client = new Client(new URL(url).host, credentials.createInsecure());
  onTestFinished(() => client.close());
  const { requestSerialize, responseDeserialize } = method;
  const call = client.makeBidiStreamRequest(method.path, requestSerialize, responseDeserialize);
  for (const question of questions) call.write(question);
  call.end();
  return call.toArray();
}
