// The platform asks the engine how containers reach it, opens another address for them, or logs why it cannot.
import { Writable } from 'node:stream';
import { describe, expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { createLog } from '../../../../src/base/log.ts';
import { type ContainerReach, EngineError } from '../../../../src/engine/engine.ts';
import {
  chooseWorkerUrl,
  explainListenFailure,
  findUrlFault,
  judgeReach,
  openWorkerAccess,
  type ReachCheck,
} from '../../../../src/platform/compute/worker-access.ts';
import { completeOptions } from '../../../../src/platform/platform-options.ts';
import { CERTIFICATE } from '../../../support/certificates.ts';

const REACH: ContainerReach = { gateway: '172.17.0.1', hostName: 'gateway' };

async function open(findReach: () => Promise<ContainerReach>, failure?: Error) {
  const clock = new ManualClock();
  const lines: { msg: string; problem?: string }[] = [];
  const stream = new Writable({
    write(chunk, _encoding, done) {
      lines.push(JSON.parse(String(chunk)));
      done();
    },
  });
  const opened: string[] = [];
  const access = await openWorkerAccess({
    options: completeOptions({
      compute: { engine: 'docker' },
      log: createLog({ destination: stream }),
    }),
    engine: { findReach },
    url: 'http://127.0.0.1:8000',
    listenAlso: async (host) => {
      if (failure) throw failure;
      opened.push(host);
    },
    clock,
  });
  onTestFinished(() => access.close());
  return { access, clock, lines, opened };
}

it('listens on the gateway of the bridge beside loopback', async () => {
  const { access, lines, opened } = await open(async () => REACH);
  expect(access.url).toBe('http://host.docker.internal:8000');
  expect(opened).toEqual(['172.17.0.1']);
  expect(lines.map(({ msg }) => msg)).toEqual(['listening for workers in containers']);
});

it('asks an engine again until it answers', async () => {
  let asked = 0;
  const { clock, opened } = await open(async () => {
    asked += 1;
    if (asked < 3) throw new EngineError('unavailable', 'down');
    return REACH;
  });
  expect(opened).toEqual([]);
  for (let turn = 0; turn < 4; turn++) await clock.advance(5_000);
  expect([asked, opened]).toEqual([3, ['172.17.0.1']]);
});

it('warns with the reason if an address cannot be opened', async () => {
  const failure = Object.assign(new Error('bind'), { code: 'EADDRNOTAVAIL' });
  const { lines } = await open(async () => REACH, failure);
  expect(lines).toMatchObject([
    {
      msg: 'workers in containers cannot reach the platform',
      problem: expect.stringContaining('is no address of this machine'),
    },
  ]);
});

const url = 'http://127.0.0.1:8000';
const byName = 'http://host.docker.internal:8000';

describe('the URL of workers', () => {
  it.each([
    ['on processes', 'process', undefined, '127.0.0.1', url, 'elsewhere'],
    ['on processes, given', 'process', 'http://a:1', '127.0.0.1', 'http://a:1', 'elsewhere'],
    ['in containers of a loopback platform', 'docker', undefined, '127.0.0.1', byName, 'bridge'],
    ['of one on localhost', 'docker', undefined, 'localhost', byName, 'bridge'],
    ['of one on ::1', 'docker', undefined, '::1', byName, 'bridge'],
    ['of one on all addresses', 'docker', undefined, '0.0.0.0', byName, 'host'],
    ['of one on all addresses of IPv6', 'docker', undefined, '::', byName, 'host'],
    ['of one on one address', 'docker', undefined, '10.0.0.5', url, 'elsewhere'],
    ['given, behind a proxy', 'docker', 'https://a.b', '127.0.0.1', 'https://a.b', 'elsewhere'],
    ['given, of this machine', 'docker', `${byName}/`, '127.0.0.1', `${byName}/`, 'bridge'],
    [
      'given, of another port',
      'docker',
      'http://host.docker.internal:1',
      '127.0.0.1',
      'http://host.docker.internal:1',
      'elsewhere',
    ],
    ['given over gRPC', 'docker', 'grpc://a:1', '127.0.0.1', 'grpc://a:1', 'elsewhere'],
  ] as const)('%s', (_what, engine, given, host, expected, way) => {
    expect(chooseWorkerUrl({ engine, given, host, url })).toEqual({ url: expected, way });
  });

  it.each([
    'http://127.0.0.1:8000',
    'https://localhost',
    'http://[::1]:8000',
    'grpc://127.0.0.2:1',
  ])('is refused for containers: %s', (given) => {
    expect(findUrlFault({ engine: 'docker', given })).toContain('leads each container to itself');
    expect(findUrlFault({ engine: 'process', given })).toBeUndefined();
  });

  it('is not refused elsewhere', () => {
    expect(findUrlFault({ engine: 'docker', given: 'http://10.0.0.5:8000' })).toBeUndefined();
    expect(findUrlFault({ engine: 'docker', given: undefined })).toBeUndefined();
    expect(findUrlFault({ engine: 'kubernetes', given: undefined })).toContain('is required');
    expect(findUrlFault({ engine: 'kubernetes', given: 'http://millrace:8000' })).toBeUndefined();
  });
});

describe('containers', () => {
  const check: ReachCheck = {
    ...{ way: 'bridge', port: 8000, listener: 'bridge', certificate: undefined },
    reach: { gateway: '172.17.0.1', hostName: 'gateway' },
  };

  it('reach a loopback platform that also listens on the gateway', () => {
    expect(judgeReach(check)).toEqual({ kind: 'listen', host: '172.17.0.1' });
  });

  it.each<[string, Partial<ReachCheck>]>([
    ['a platform on all addresses', { way: 'host' }],
    ['a platform whose URL somebody chose', { way: 'elsewhere' }],
    ['the loopback address by Docker Desktop', { reach: { gateway: null, hostName: 'loopback' } }],
  ])('reach %s', (_what, changes) => {
    expect(judgeReach({ ...check, ...changes })).toEqual({ kind: 'reachable' });
  });

  it('do not reach a loopback platform without that listener: the flags are proposed', () => {
    expect(judgeReach({ ...check, listener: 'none' })).toEqual({
      kind: 'unreachable',
      problem:
        'the platform listens only on loopback; start the platform with --host 172.17.0.1 --worker-url http://172.17.0.1:8000',
    });
  });

  it('have no name for the machine with podman', () => {
    const reach = { gateway: '10.88.0.1', hostName: 'none' } as const;
    expect(judgeReach({ ...check, way: 'host', reach })).toMatchObject({
      kind: 'unreachable',
      problem: expect.stringContaining('--worker-url http://ADDRESS:8000'),
    });
  });

  it('refuse a certificate without their name for the machine', () => {
    expect(judgeReach({ ...check, certificate: CERTIFICATE })).toMatchObject({
      kind: 'unreachable',
      problem: expect.stringContaining('is not for host.docker.internal'),
    });
  });
});

it('says why a listener cannot be opened, and what to do', () => {
  const fail = (code: string) =>
    explainListenFailure('172.17.0.1', 8000, Object.assign(new Error('failed'), { code }));
  expect(fail('EADDRNOTAVAIL')).toContain('172.17.0.1, which is no address of this machine');
  expect(fail('EADDRINUSE')).toContain(
    'port 8000 on 172.17.0.1, the address for containers, is in use',
  );
  expect(fail('EACCES')).toContain('failed');
});
