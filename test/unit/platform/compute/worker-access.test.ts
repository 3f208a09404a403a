// The platform asks the engine how containers reach it, opens another address for them, or logs why it cannot.

import { Writable } from 'node:stream';
import { expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { createLog } from '../../../../src/base/log.ts';
import { type ContainerReach, EngineError } from '../../../../src/engine/engine.ts';
import { openWorkerAccess } from '../../../../src/platform/compute/worker-access.ts';
import { completeOptions } from '../../../../src/platform/platform-options.ts';

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

it('a loopback platform listens also on the gateway of the bridge', async () => {
  const { access, lines, opened } = await open(async () => REACH);
  expect(access.url).toBe('http://host.docker.internal:8000');
  expect(opened).toEqual(['172.17.0.1']);
  expect(lines.map(({ msg }) => msg)).toEqual(['listening for workers in containers']);
});

it('an engine that does not answer is asked again until it does', async () => {
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

it('an address that cannot be opened is a warning with the reason', async () => {
  const failure = Object.assign(new Error('bind'), { code: 'EADDRNOTAVAIL' });
  const { lines } = await open(async () => REACH, failure);
  expect(lines).toMatchObject([
    {
      msg: 'workers in containers cannot reach the platform',
      problem: expect.stringContaining('is no address of this machine'),
    },
  ]);
});
